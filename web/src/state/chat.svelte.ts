/** One open conversation: what is shown of it, and what can be done with it. */

import { t } from "../i18n/messages.svelte";
import { ApiError, api } from "../protocol/api";
import type { ResponseStreams, Stream } from "../protocol/streams";
import {
  CONVERSATION_GONE,
  isTerminal,
  textOf,
  type CreateRequest,
  type ErrorBody,
  type ResponseEvent,
  type Sampling,
} from "../protocol/types";
import { applyEvent, applyRefusal, finish } from "./reduce";
import { forgetRunning, rememberRunning, runningResponses, type RunningResponse } from "./running";
import { DEFAULT_SETTINGS, fromMetadata, samplingFields, toMetadata, type Settings } from "./settings";
import {
  addMessage,
  branchesOf,
  choose,
  emptyTree,
  findById,
  idsOf,
  isRunning,
  mergeItems,
  nearestStored,
  removeBranch,
  visiblePath,
  type Message,
} from "./tree";

const MAX_TITLE = 60;

/** What a chat tells to the outside. */
export interface ChatListener {
  /** It was created or renamed, or something happened in it. */
  onChanged(chat: Chat): void;
  /** An answer has ended. */
  onAnswered(answer: Message): void;
  /** It turned out to be deleted, by another page. */
  onGone(chat: Chat): void;
  /** A question that it was deleted before is to be asked in a new one. */
  onHomeless(question: string, settings: Settings): void;
}

export class Chat {
  id: string | null = $state(null);
  title = $state("");
  settings: Settings = $state({ ...DEFAULT_SETTINGS });
  tree = $state(emptyTree());
  isLoading = $state(false);
  /** The server has it no more: what is shown is all that is left. */
  isGone = $state(false);
  /** What is on the way that the next question has to follow. */
  #numWaits = $state(0);

  /** What it is called where it is shown; nothing until it is known. */
  readonly name = $derived(this.isLoading ? this.title : nameOf(this.id, this.title));
  readonly branches = $derived(branchesOf(this.tree));
  readonly path = $derived(visiblePath(this.tree, this.branches));
  readonly runningAnswers = $derived(Object.values(this.tree.messages).filter(isRunning));
  /** Whether an answer runs, or something was written that never reached the server. */
  readonly isNeeded = $derived(
    this.runningAnswers.length > 0 || Object.values(this.tree.messages).some(({ id, role }) => id === null && role === "user"),
  );
  /** Whether something runs that has not been told to stop. */
  readonly isAnswering = $derived(this.runningAnswers.some(({ isStopping }) => !isStopping));
  /** Whether the next question has to wait: also where it is not known yet whether the server has what was stopped. */
  readonly mustWait = $derived(
    this.#numWaits > 0 || this.runningAnswers.some(({ id, isStopping }) => !isStopping || id === null),
  );

  readonly #server: ResponseStreams;
  readonly #listener: ChatListener;
  readonly #recommended: () => Sampling;
  readonly #streams = new Map<string, Stream>();

  /** `recommended` tells what suits the model, once that is known. */
  constructor(server: ResponseStreams, listener: ChatListener, recommended: () => Sampling) {
    this.#server = server;
    this.#listener = listener;
    this.#recommended = recommended;
  }

  /** Reads a conversation from the server, and follows what is still running in it. */
  async load(id: string): Promise<void> {
    this.id = id;
    this.isLoading = true;
    try {
      await this.#read(id);
    } finally {
      this.isLoading = false;
    }
  }

  /** Takes over what other pages and earlier connections did. */
  async refresh(): Promise<void> {
    if (this.id === null || this.isGone) return;
    try {
      await this.#read(this.id);
    } catch (error) {
      if (!(error instanceof ApiError && error.body.code === CONVERSATION_GONE)) throw error;
      this.#gone();
    }
  }

  /** Asks at the end of the visible path. Throws where the conversation cannot be created. */
  async send(text: string): Promise<void> {
    await this.#first(async () => {
      if (this.id === null) await this.#create(text);
      this.#ask(nearestStored(this.tree, this.path.at(-1)), text);
    });
  }

  /** Asks something else in place of a question; the old one stays as a sibling. */
  edit(question: Message, text: string): void {
    this.#ask(nearestStored(this.tree, this.tree.messages[question.parent ?? ""]), text);
  }

  /** Answers the same question once more. */
  regenerate(answer: Message): void {
    const question = this.tree.messages[answer.parent ?? ""];
    if (!question) return;
    if (this.isGone) this.#listener.onHomeless(question.text, this.settings);
    else if (question.id !== null) this.#answer(question, { parent_id: question.id });
    else this.#retry(question);
  }

  /** Stops all that runs. The next question may follow at once: the server keeps the order. */
  stop(): void {
    for (const answer of this.runningAnswers) {
      answer.isStopping = true;
      this.#streams.get(answer.key)?.cancel();
    }
  }

  choose(message: Message): void {
    choose(this.tree, message);
  }

  /** Shows the messages of these ids in place of their siblings. */
  show(ids: string[]): void {
    for (const id of ids) {
      const message = findById(this.tree, id);
      if (message) choose(this.tree, message);
    }
  }

  /** Deletes a message with all that followed it. */
  async remove(message: Message): Promise<void> {
    for (const { key, id } of removeBranch(this.tree, message)) {
      this.#streams.get(key)?.cancel();
      if (id !== null && this.id !== null) await api.deleteItem(this.id, id);
    }
    this.#listener.onChanged(this);
  }

  async rename(title: string): Promise<void> {
    this.title = title;
    await this.saveSettings();
  }

  /** Writes title and settings to the server. */
  async saveSettings(): Promise<void> {
    if (this.id !== null) await api.updateConversation(this.id, toMetadata(this.title, this.settings));
    this.#listener.onChanged(this);
  }

  /** Reads the counts and times of an answer that was given before the page was loaded. */
  async readDetails(answer: Message): Promise<void> {
    if (answer.usage || answer.responseId === null || isRunning(answer)) return;
    const response = await api.readResponse(answer.responseId).catch(() => null);
    if (response) finish(answer, response);
  }

  /** Follows nothing any more; running answers go on at the server. */
  leave(): void {
    for (const stream of this.#streams.values()) stream.leave();
  }

  /** Lets the next question wait for what is done first. */
  async #first(action: () => Promise<void>): Promise<void> {
    this.#numWaits += 1;
    try {
      await action();
    } finally {
      this.#numWaits -= 1;
    }
  }

  async #read(id: string): Promise<void> {
    const before = idsOf(this.tree);
    const [{ metadata }, items] = await Promise.all([api.readConversation(id), api.listItems(id)]);
    this.title = metadata.title ?? "";
    this.settings = fromMetadata(metadata);
    mergeItems(this.tree, items, before);
    this.#followRunning();
    if (!this.title) await this.#nameAfterQuestion(metadata);
  }

  /** Other clients give no titles. What else they wrote about the conversation stays. */
  async #nameAfterQuestion(metadata: Record<string, string>): Promise<void> {
    this.title = titleOf(this.path.find(({ role }) => role === "user")?.text ?? "");
    const named = { ...metadata, title: this.title };
    // It is shown all the same where it cannot be kept.
    if (this.title) await api.updateConversation(this.id!, named).catch(() => null);
  }

  #gone(): void {
    this.isGone = true;
    this.#listener.onGone(this);
  }

  #followRunning(): void {
    for (const running of runningResponses()) {
      if (running.conversationId === this.id) this.#restore(running);
    }
    for (const answer of this.runningAnswers) {
      if (answer.responseId !== null && !this.#streams.has(answer.key)) this.#follow(answer, answer.responseId);
    }
    const last = this.path.findLast(({ role }) => role === "assistant");
    if (last) void this.readDetails(last);
  }

  async #create(text: string): Promise<void> {
    this.title = titleOf(text);
    this.id = (await api.createConversation(toMetadata(this.title, this.settings))).id;
    this.#listener.onChanged(this);
  }

  #ask(parent: Message | null, text: string): void {
    this.#dropStopped(parent);
    const question = addMessage(this.tree, { parent: parent?.key ?? null, role: "user", text, status: "completed" });
    this.#answer(question, { parent_id: parent?.id ?? "root", input: text }, this.settings.numAnswers - 1);
  }

  /** What was stopped before the server had it is nowhere else, and no version of what is asked in its place. */
  #dropStopped(parent: Message | null): void {
    for (const question of this.branches.get(parent?.key ?? null) ?? []) {
      const answers = this.branches.get(question.key) ?? [];
      if (question.id === null && answers.some(({ reason }) => reason === "cancelled")) removeBranch(this.tree, question);
    }
  }

  /** A question that never reached the server is asked again. */
  #retry(question: Message): void {
    const parent = nearestStored(this.tree, question);
    removeBranch(this.tree, question);
    this.#ask(parent, question.text);
  }

  /** `numMore` answers beside this one begin when the server has the question: they share its blocks. */
  #answer(question: Message, place: Pick<CreateRequest, "parent_id" | "input">, numMore = 0): void {
    const answer = addMessage(this.tree, { parent: question.key, role: "assistant", text: "", status: "queued" });
    const request = { conversation: this.id!, ...place, ...samplingFields(this.settings, this.#recommended()) };
    let numWaiting = numMore;
    const stream = this.#server.create(request, {
      onEvent: (event) => {
        if (event.type === "response.created") this.#remember(event.response.id, place);
        this.#received(answer.key, event);
        for (; question.id !== null && numWaiting > 0; numWaiting -= 1) {
          this.#answer(question, { parent_id: question.id });
        }
      },
      onRefused: (error) => void this.#refused(answer.key, error),
    });
    if (isRunning(answer)) this.#streams.set(answer.key, stream);
    this.#listener.onChanged(this);
  }

  #remember(responseId: string, { parent_id, input }: Pick<CreateRequest, "parent_id" | "input">): void {
    const question = input === undefined ? {} : { input };
    rememberRunning({ responseId, conversationId: this.id!, parentId: parent_id, ...question });
  }

  #follow(answer: Message, responseId: string): void {
    const stream = this.#server.follow(responseId, {
      onEvent: (event) => this.#received(answer.key, event),
      onRefused: (error) => void this.#refused(answer.key, error),
    });
    if (isRunning(answer)) this.#streams.set(answer.key, stream);
  }

  #received(key: string, event: ResponseEvent): void {
    applyEvent(this.tree, key, event);
    // Now the server has it, so that other pages can see it.
    if (event.type === "response.output_item.added") this.#listener.onChanged(this);
    if (!isTerminal(event)) return;
    this.#streams.delete(key);
    if ("response" in event) forgetRunning(event.response.id);
    const answer = this.tree.messages[key];
    if (answer) this.#listener.onAnswered(answer);
    // What ends before its first word tells no ids; the server may have it, and its question, all the same.
    if (answer?.id === null) void this.#first(() => this.refresh()).catch(() => undefined);
    this.#listener.onChanged(this);
  }

  /** The request was refused, or the events of its response are gone; the answer itself may still be there. */
  async #refused(key: string, error: ErrorBody): Promise<void> {
    this.#streams.delete(key);
    if (error.code === CONVERSATION_GONE) this.#gone();
    const responseId = this.tree.messages[key]?.responseId ?? null;
    if (responseId === null) return applyRefusal(this.tree, key, error);
    forgetRunning(responseId);
    const response = await api.readResponse(responseId).catch(() => null);
    const answer = this.tree.messages[key];
    const isOver = response && response.status !== "queued" && response.status !== "in_progress";
    if (!isOver || !answer) return applyRefusal(this.tree, key, error);
    answer.text = response.output?.map(textOf).join("") ?? answer.text;
    finish(answer, response);
  }

  /** Shows a response that waits and has no items yet. */
  #restore({ responseId, parentId, input }: RunningResponse): void {
    if (Object.values(this.tree.messages).some((message) => message.responseId === responseId)) return;
    const parent = findById(this.tree, parentId) ?? null;
    if (input === undefined && parent === null) return forgetRunning(responseId);
    const question =
      input === undefined
        ? parent!
        : addMessage(this.tree, { parent: parent?.key ?? null, role: "user", text: input, status: "completed" });
    const answer = addMessage(this.tree, { parent: question.key, role: "assistant", text: "", status: "queued" });
    answer.responseId = responseId;
  }
}

/** What a conversation is called. One without an id is new. */
export function nameOf(id: string | null, title: string | undefined): string {
  return title || t(id === null ? "chat.new" : "chat.untitled");
}

function titleOf(text: string): string {
  const line = text.trim().split("\n")[0]!.trim();
  const characters = [...new Intl.Segmenter().segment(line)].map(({ segment }) => segment);
  return characters.length > MAX_TITLE ? `${characters.slice(0, MAX_TITLE - 1).join("")}…` : line;
}
