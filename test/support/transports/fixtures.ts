/** The fixture of every transport, one line each. */
import { channelFixture } from './channel.ts';
import type { TransportFixture } from './fixture.ts';
import { grpcFixture } from './grpc.ts';
import { httpFixture } from './http.ts';
import { jsonRpcFixture } from './json-rpc.ts';
import { localFixture } from './local.ts';
import { behindMesh, meshFixture } from './mesh.ts';
import { mockFixture } from './mock.ts';
import { natsFixture } from './nats.ts';

export const FIXTURES: readonly TransportFixture[] = [
  channelFixture,
  grpcFixture,
  httpFixture,
  jsonRpcFixture,
  localFixture,
  meshFixture,
  mockFixture,
  natsFixture,
];

/** Agents that only their own sidecar can reach, called from another one. */
export const BEHIND_MESH: readonly TransportFixture[] = [
  behindMesh('mesh → channel', channelFixture),
  behindMesh('mesh → grpc', grpcFixture),
  behindMesh('mesh → jsonrpc', jsonRpcFixture),
  behindMesh('mesh → nats', natsFixture),
];
