/** One WebSocket that comes back by itself. */

export type ConnectionStatus = "connecting" | "open" | "offline";

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 15_000;

/** Full jitter: many pages that lost one server do not come back in the same instant. */
export function retryDelay(attempt: number, random = Math.random): number {
  return FIRST_DELAY_MS + random() * Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt);
}

export interface ConnectionListener<Event> {
  onStatus(status: ConnectionStatus): void;
  /** `text` is the event as it came. */
  onEvent(event: Event, text: string): void;
}

export class Connection<Event> {
  #address: string;
  #listener: ConnectionListener<Event>;
  #socket: WebSocket | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #attempt = 0;

  constructor(address: string, listener: ConnectionListener<Event>) {
    this.#address = address;
    this.#listener = listener;
  }

  /** Connect now, also when waiting for the next attempt. Does nothing while a socket is open or opening. */
  connect(): void {
    if (this.#socket) return;
    clearTimeout(this.#timer);
    this.#listener.onStatus("connecting");
    const socket = (this.#socket = new WebSocket(this.#address));
    socket.onopen = () => this.#opened();
    socket.onmessage = ({ data }) => this.#received(data);
    socket.onclose = () => this.#closed(socket);
  }

  /** Whether the event went out; an event that did not is not kept. */
  send(event: object): boolean {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(event));
    return true;
  }

  /** Close for good, until `connect` is called. */
  close(): void {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #opened(): void {
    this.#attempt = 0;
    this.#listener.onStatus("open");
  }

  #received(data: unknown): void {
    if (typeof data === "string") this.#listener.onEvent(JSON.parse(data) as Event, data);
  }

  #closed(socket: WebSocket): void {
    if (this.#socket !== socket) return;
    this.#socket = null;
    this.#listener.onStatus("offline");
    this.#timer = setTimeout(() => this.connect(), retryDelay(this.#attempt));
    this.#attempt += 1;
  }
}
