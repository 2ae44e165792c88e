/** Where the agents of this machine call in: a port, or a socket in the file system. */
import { quote } from '../base/duration.ts';
import { type Listen, listenAt } from '../proto/language/process-shapes.ts';
import { type Bad, mapped, type Place, type Shape } from '../proto/language/reader.ts';
import { choice, isText, text } from '../proto/language/shapes.ts';

export interface ListenRead {
  readonly listen: Listen;
  /** null = a port. */
  readonly socket: string | null;
}

const SCHEME = 'unix:';
/** What systems allow for the path of a socket, less what is added to it while the socket is made. */
const MAX_PATH_BYTES = 88;
/** Stands for the port that there is none of. */
const NO_PORT: Listen = Object.freeze({ host: 'localhost', port: 0 });

const port: Shape<ListenRead> = mapped(listenAt('127.0.0.1:7700'), (listen) => ({ listen, socket: null }));

const socket: Shape<ListenRead> = mapped(text('unix: and the path of a socket'), (written, place: Place): ListenRead | Bad => {
  const path = written.slice(SCHEME.length);
  if (!path.startsWith('/') || path.endsWith('/') || path.includes('\u0000'))
    return place.bad(`${place.name} must be unix: and an absolute path such as unix:/run/reach/agents.sock, not ${quote(written)}`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    return place.bad(`the path of a socket has at most ${MAX_PATH_BYTES} bytes here, and this one ${Buffer.byteLength(path)}`);
  return { listen: NO_PORT, socket: path };
});

export const agentsListen: Shape<ListenRead> = choice<ListenRead>('a host and a port such as 127.0.0.1:7700, or unix:/path/of/a/socket', [
  { accepts: (value) => isText(value) && (value as string).startsWith(SCHEME), shape: socket },
  // What is no text is told so by the shape of a port.
  { accepts: () => true, shape: port },
]);

/** Modes of the socket's file: its owner, or its owner and group. */
export const SOCKET_MODES = ['0600', '0660'] as const;
