/** The whole page: its connection, its conversations, and which one is open. */

import { t } from "../i18n/messages.svelte";
import { explainInLine } from "../i18n/problems";
import { ApiError, api } from "../protocol/api";
import type { ConnectionStatus } from "../protocol/connection";
import { ResponseStreams } from "../protocol/streams";
import type { Conversation, Model, Role } from "../protocol/types";
import { Chat, type ChatListener } from "./chat.svelte";
import { ConversationList } from "./conversations.svelte";
import { importConversation } from "./import";
import { fromJson } from "./portable";
import { forgetRunning, runningResponses } from "./running";
import { fromMetadata, toMetadata, type Settings } from "./settings";
import { forgetPrivate, readStored, writeStored } from "./stored";
import type { Message } from "./tree";

export type DialogName = "settings" | "shortcuts" | "preferences" | "signIn";

/** "signedOut": the server is there, and wants to know who is asking. Nothing is tried again until somebody signs in. */
export type AppStatus = ConnectionStatus | "signedOut";

const ENGINE_HASH = "#/engine";
const HASH = /^#\/c\/(conv_[\w-]+)$/;

export class App {
  status: AppStatus = $state("connecting");
  isEngineRoomOpen = $state(false);
  /** What the key allows that this browser signed in with. */
  role: Role | null = $state(storedRole());
  model: Model | null = $state(null);
  chat: Chat = $state.raw(undefined!);
  dialog: DialogName | null = $state(null);
  /** The last thing that went wrong, in words. */
  problem: string | null = $state(null);
  /** What a screen reader says next. */
  announcement = $state("");

  readonly conversations = new ConversationList();
  readonly #streams: ResponseStreams;
  /** Conversations whose answers still run stay open behind the one that is shown. */
  readonly #chats = new Map<string, Chat>();
  /** Tells the other pages of this browser which conversation was changed here. */
  readonly #otherPages = new BroadcastChannel("chatsrv");

  constructor(address: string) {
    this.#otherPages.onmessage = ({ data }: MessageEvent<string>) => this.lookAgain(data);
    this.#streams = new ResponseStreams(address, (status) => this.#statusChanged(status));
    this.chat = this.#newChat();
  }

  start(): void {
    this.#streams.connect();
    void this.attempt(() => this.#openFromHash());
  }

  connect(): void {
    if (this.status !== "signedOut") this.#streams.connect();
  }

  /** Shows what other pages have done to the list and to a conversation, if this one is seen and can know. */
  lookAgain(id = this.chat.id): void {
    if (document.hidden || this.status !== "open") return;
    void this.#lookAgain(id).catch(() => undefined);
  }

  /** Runs an action and shows what went wrong with it; answers whether it worked. */
  async attempt(action: () => Promise<unknown>): Promise<boolean> {
    this.problem = null;
    try {
      await action();
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.problem = t("error.action", { message: explainInLine(error.body) });
      // What is shown is out of date.
      if (error.status === 404) this.lookAgain();
      return false;
    }
  }

  /** A dialog tells its end a moment late, when the next one may be open already. */
  closeDialog(name: DialogName): void {
    if (this.dialog === name) this.dialog = null;
  }

  /** Answers whether the key was taken. */
  async signIn(key: string): Promise<boolean> {
    const isTaken = await this.attempt(async () => this.#setRole((await api.login(key)).role));
    if (isTaken) {
      this.closeDialog("signIn");
      this.#streams.connect();
    }
    return isTaken;
  }

  /** Gives the key back, and forgets all that this browser has seen with it. */
  async signOut(): Promise<void> {
    if (!(await this.attempt(() => api.logout()))) return;
    forgetPrivate();
    location.replace("/");
  }

  #setRole(role: Role | null): void {
    this.role = role;
    writeStored("role", role);
  }

  openEngineRoom(): void {
    this.isEngineRoomOpen = true;
    this.#writeHash();
  }

  closeEngineRoom(): void {
    this.isEngineRoomOpen = false;
    this.#writeHash();
  }

  openNew(): void {
    this.isEngineRoomOpen = false;
    this.#park();
    this.chat = this.#newChat();
    this.#writeHash();
  }

  async open(id: string): Promise<void> {
    if (this.isEngineRoomOpen) this.closeEngineRoom();
    if (this.chat.id === id) return;
    this.#park();
    this.chat = this.#chatOf(id);
    this.#writeHash(id);
    if (Object.keys(this.chat.tree.messages).length > 0) return this.lookAgain();
    const { chat } = this;
    try {
      await chat.load(id);
      this.conversations.rename(chat);
    } catch (error) {
      // Who signs in finds what they wanted to open.
      if (this.chat === chat && !isUnauthorized(error)) this.openNew();
      throw error;
    }
  }

  async rename({ id, metadata }: Conversation, title: string): Promise<void> {
    if (this.chat.id === id) return this.chat.rename(title);
    await api.updateConversation(id, toMetadata(title, fromMetadata(metadata)));
    await this.conversations.refresh();
    this.#otherPages.postMessage(id);
  }

  async remove(id: string): Promise<void> {
    await this.conversations.remove(id);
    this.#otherPages.postMessage(id);
    const isOpen = this.chat.id === id;
    (isOpen ? this.chat : this.#chats.get(id))?.leave();
    if (isOpen) this.openNew();
    this.#chats.delete(id);
  }

  /** Makes a conversation of an exported file, and opens it. */
  async importFile(text: string): Promise<void> {
    const conversation = fromJson(text);
    if (!conversation) {
      this.problem = t("chat.importFailed");
      return;
    }
    await this.attempt(async () => {
      const { id, shownIds } = await importConversation(conversation);
      await Promise.all([this.conversations.refresh(), this.open(id)]);
      this.chat.show(shownIds);
      this.#otherPages.postMessage(id);
    });
  }

  isRunning(id: string): boolean {
    return (this.chat.id === id ? this.chat : this.#chats.get(id))?.runningAnswers.length ? true : false;
  }

  #newChat(): Chat {
    const listener: ChatListener = {
      onChanged: (chat) => this.#changed(chat),
      onAnswered: (answer) => this.#answered(answer),
      onGone: ({ id }) => this.conversations.drop(id!),
      onHomeless: (question, settings) => void this.#askAnew(question, settings),
    };
    return new Chat(this.#streams, listener, () => this.model?.sampling ?? {});
  }

  /** Asks in a new conversation what can no longer be asked in the one that is open. */
  async #askAnew(question: string, settings: Settings): Promise<void> {
    const { id } = this.chat;
    this.openNew();
    const { chat } = this;
    chat.settings = { ...settings };
    const wasSent = await this.attempt(() => chat.send(question));
    if (!wasSent && this.chat === chat) await this.open(id!);
  }

  #chatOf(id: string): Chat {
    return this.#chats.get(id) ?? this.#newChat();
  }

  /** Keeps what is open while there is more in it than the server has. */
  #park(): void {
    const { chat } = this;
    if (chat.id !== null && chat.isNeeded) this.#chats.set(chat.id, chat);
  }

  #changed(chat: Chat): void {
    if (!chat.isGone) this.conversations.touch(chat);
    this.#otherPages.postMessage(chat.id);
    if (chat === this.chat) this.#writeHash();
    else if (chat.id !== null && !chat.isNeeded) this.#chats.delete(chat.id);
  }

  #answered({ status, reason }: Message): void {
    if (status === "failed") this.announcement = t("live.failed");
    else this.announcement = t(reason === "cancelled" ? "live.stopped" : "live.done");
  }

  #statusChanged(status: ConnectionStatus): void {
    if (status !== "offline" || this.status === "open") this.status = status;
    if (status === "open") void this.attempt(() => this.#synchronise());
    if (status === "offline") void this.#askForKey();
  }

  /** A socket does not tell why it was refused; a request does. */
  async #askForKey(): Promise<void> {
    const refusal: unknown = await api.listModels().catch((error: unknown) => error);
    if (this.status === "open" || this.status === "signedOut") return;
    if (isUnauthorized(refusal)) this.#signedOut();
    else this.status = "offline";
  }

  #signedOut(): void {
    this.#streams.close();
    this.#setRole(null);
    this.status = "signedOut";
    this.dialog = "signIn";
  }

  /** After the first connection and after each later one: what happened in between? */
  async #synchronise(): Promise<void> {
    await Promise.all([this.#readModel(), this.#lookAgain()]);
    await this.#followBackground();
  }

  async #lookAgain(id = this.chat.id): Promise<void> {
    const { chat } = this;
    const wasGone = chat.isGone;
    await Promise.all([this.conversations.refresh(), chat.id !== id || chat.isLoading ? null : chat.refresh()]);
    if (chat === this.chat && chat.isGone && !wasGone) this.problem = t("problem.conversation_not_found");
  }

  async #readModel(): Promise<void> {
    this.model = (await api.listModels()).data[0] ?? null;
  }

  /** Answers that ran when the page was closed, in conversations other than the one that is shown. */
  async #followBackground(): Promise<void> {
    for (const { conversationId: id, responseId } of runningResponses()) {
      if (id === this.chat.id || this.#chats.has(id)) continue;
      const chat = this.#newChat();
      this.#chats.set(id, chat);
      await chat.load(id).catch(() => {
        this.#chats.delete(id);
        forgetRunning(responseId);
      });
    }
  }

  async openFromHash(): Promise<void> {
    await this.attempt(() => this.#openFromHash());
  }

  async #openFromHash(): Promise<void> {
    const id = HASH.exec(location.hash)?.[1];
    this.isEngineRoomOpen = location.hash === ENGINE_HASH;
    if (id) await this.open(id);
    else if (this.chat.id !== null && !this.isEngineRoomOpen) this.openNew();
  }

  #writeHash(id = this.chat.id): void {
    const hash = this.isEngineRoomOpen ? ENGINE_HASH : id === null ? "#/" : `#/c/${id}`;
    if (location.hash !== hash) history.pushState(null, "", hash);
  }
}

function isUnauthorized(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

function storedRole(): Role | null {
  const role = readStored("role");
  return role === "user" || role === "admin" ? role : null;
}
