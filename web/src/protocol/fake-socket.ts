/** A WebSocket without a network, for tests: what the page sent is kept, and the test plays the server. */

export class FakeSocket {
  static readonly OPEN = 1;
  static opened: FakeSocket[] = [];

  readyState = 0;
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  readonly sent: Record<string, unknown>[] = [];

  constructor(readonly address: string) {
    FakeSocket.opened.push(this);
  }

  static get last(): FakeSocket {
    return FakeSocket.opened.at(-1)!;
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }

  close(): void {
    this.drop();
  }

  /** The server accepts. */
  accept(): void {
    this.readyState = FakeSocket.OPEN;
    this.onopen?.();
  }

  /** The server says something. */
  say(event: object): void {
    this.onmessage?.({ data: JSON.stringify(event) });
  }

  /** The network goes away. */
  drop(): void {
    this.readyState = 3;
    this.onclose?.();
  }
}
