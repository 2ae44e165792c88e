/**
 * The fixture of every way in. The compiler holds the list against the type: a way in that is added to `WayIn` and not
 * here does not compile. The channel has two carriers, and stands here with each.
 */
import type { WayIn } from '../../../sidecar/call/call.ts';
import { channelWay } from './channel.ts';
import { grpcChannelWay } from './grpc-channel.ts';
import { grpcWay } from './grpc.ts';
import { httpWay } from './http.ts';
import { jsonRpcWay } from './json-rpc.ts';
import { localWay } from './local.ts';
import { meshWay } from './mesh.ts';
import { proxyWay } from './proxy.ts';
import type { WayFixture } from './way.ts';

/** Not doors: calls that the sandbox and the fallback make inside. */
type LiveWay = Exclude<WayIn, 'message' | 'sandbox' | 'fallback'>;

export const WAYS: Readonly<Record<LiveWay | 'grpc_channel', WayFixture>> = {
  channel: channelWay,
  grpc: grpcWay,
  grpc_channel: grpcChannelWay,
  http: httpWay,
  json_rpc: jsonRpcWay,
  local: localWay,
  mesh: meshWay,
  proxy: proxyWay,
};
