/**
 * The shop has systems that nobody wrote for Agent-Reach: gRPC, JSON-RPC, NATS, FastAPI, a till without a port, a program with
 * the engine inside. One sidecar beside them registers them as they are; the front asks each of them in the same way, and can
 * itself call in by whatever it speaks.
 */
import { isDeepStrictEqual } from 'node:util';
import type { RegisteredTeam } from '../registered-team.ts';
import { FRONT } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { isRight, ORDERS, PARCELS, SHOP, STOCK, type System, SYSTEMS, TEXT } from '../systems.ts';
import { byChannel, byGrpc, byHttp, byJsonRpc, byProxy, type Told } from '../ways-in.ts';
import { callFrom, type Counts, outcome } from './scene.ts';

/** How one system was asked, and whether what came back is right. */
export interface Asked {
  readonly system: System;
  readonly words: string;
  readonly isRight: boolean;
}

/** The front asks, through its own sidecar, as it asks everybody. */
export async function ask(team: RegisteredTeam, system: System): Promise<Asked> {
  const result = await callFrom(team, system.capability, system.payload, 'systems-1');
  const right = result.code === 0 && !result.degraded && result.provider === system.agentId && isRight(system, result.data);
  return { system, words: right ? `${result.elapsed_ms.toFixed(0)} ms` : outcome(result), isRight: right };
}

export async function otherSystems(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const at = performance.now();
  const shop = await team.openShop();
  const seconds = ((performance.now() - at) / 1_000).toFixed(1);
  tell.say(`${SYSTEMS.length} systems and one sidecar beside them, "${SHOP.sidecar}", are up and registered after ${seconds} s`);

  const protocols: string[] = [];
  for (const system of SYSTEMS) {
    const asked = await ask(team, system);
    const shown = Object.entries(system.answer)
      .map(([key, value]) => `${key} ${String(value)}`)
      .join(', ');
    tell.say(`${system.capability.padEnd(20)} ${system.protocol.padEnd(8)} ${asked.words.padStart(6)}   ${shown}   (${system.what})`);
    if (tell.check(`${system.capability} by ${system.protocol}`, asked.words, 'the right answer', asked.isRight))
      protocols.push(system.protocol);
  }
  tell.reasons(await callFrom(team, ORDERS.capability, ORDERS.payload, 'systems-1'), ['resolve', 'choose', 'attempt']);

  const { place } = team.seat(FRONT);
  const waysIn: string[] = [];
  const comesIn = async (way: string, system: System, words: string, call: () => Promise<Told>): Promise<void> => {
    const direct = await byHttp(place, system.capability, system.payload);
    const told = await call().catch((error: Error) => error);
    const isSame = !(told instanceof Error) && told.provider === system.agentId && isDeepStrictEqual(told.data, direct.data);
    tell.say(`${way.padEnd(9)} → ${system.protocol.padEnd(8)} ${words}`);
    const got = told instanceof Error ? told.message : told;
    if (tell.check(`${system.capability} by ${way}`, got, 'what plain HTTP gets', isSame && isRight(system, direct.data))) waysIn.push(way);
  };
  tell.say('the front, in the words of other clients; each gets what plain HTTP gets:');
  const { capability: get } = ORDERS;
  await comesIn('json-rpc', ORDERS, `POST /rpc {"jsonrpc":"2.0","id":"call-1","method":"${get}",…}`, () =>
    byJsonRpc(place, get, ORDERS.payload),
  );
  const { capability: track } = PARCELS;
  await comesIn('grpc', PARCELS, `agentreach.v1.Reach/Invoke {"capability":"${track}",…}`, () => byGrpc(place, track, PARCELS.payload));
  await comesIn('proxy', TEXT, `http_proxy=http://… curl -d '{"text":…}' http://${TEXT.capability}/sentiment`, () =>
    byProxy(place, TEXT.capability, '/sentiment', TEXT.payload),
  );
  const { capability: level } = STOCK;
  await comesIn('channel', STOCK, `WebSocket: reach.invoke {"capability":"${level}",…}`, () => byChannel(place, level, STOCK.payload));
  tell.equal(
    'protocols that answered',
    protocols,
    SYSTEMS.map(({ protocol }) => protocol),
  );
  tell.check('sidecars that came with the shop', shop.sidecars, 'its own and the one inside the desk', shop.sidecars.length === 2);
  return { protocols, ways_in: waysIn };
}
