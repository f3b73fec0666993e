/** The HTTP side of the protocol. Every failure is an `ApiError`. */

import {
  CONNECTION_LOST,
  type Conversation,
  type ErrorBody,
  type Item,
  type List,
  type Model,
  type Role,
  type WireResponse,
} from "./types";

export class ApiError extends Error {
  override readonly name = "ApiError";

  /** `status` is 0 where the server could not be reached. */
  constructor(
    readonly status: number,
    readonly body: ErrorBody,
  ) {
    super(body.message);
  }
}

async function call<T>(method: string, path: string, body?: object): Promise<T> {
  const request: RequestInit = { method };
  if (body) {
    request.headers = { "content-type": "application/json" };
    request.body = JSON.stringify(body);
  }
  const response = await fetch(path, request).catch(() => {
    throw new ApiError(0, CONNECTION_LOST);
  });
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer as T;
  throw new ApiError(response.status, answer?.error ?? { code: null, message: response.statusText });
}

async function readAll<T>(path: string, parameters: Record<string, string>): Promise<T[]> {
  const all: T[] = [];
  for (let after: string | null = null; ; ) {
    const query = new URLSearchParams({ ...parameters, limit: "100", ...(after ? { after } : {}) });
    const page: List<T> = await call("GET", `${path}?${query}`);
    all.push(...page.data);
    if (!page.has_more || page.last_id === null) return all;
    after = page.last_id;
  }
}

export const MAX_NEW_ITEMS = 20;

export const api = {
  /** Trades an API key for a cookie that no script can read. */
  login: (key: string) => call<{ role: Role }>("POST", "/v1/login", { key }),

  logout: () => call<unknown>("DELETE", "/v1/login"),

  listModels: () => call<List<Model>>("GET", "/v1/models"),

  /** One page of conversations, last used first. */
  listConversations: (query: string, after: string | null) =>
    call<List<Conversation>>(
      "GET",
      `/v1/conversations?${new URLSearchParams({ limit: "50", ...(query ? { query } : {}), ...(after ? { after } : {}) })}`,
    ),

  createConversation: (metadata: Record<string, string>) => call<Conversation>("POST", "/v1/conversations", { metadata }),

  readConversation: (id: string) => call<Conversation>("GET", `/v1/conversations/${id}`),

  updateConversation: (id: string, metadata: Record<string, string>) =>
    call<Conversation>("POST", `/v1/conversations/${id}`, { metadata }),

  deleteConversation: (id: string) => call<unknown>("DELETE", `/v1/conversations/${id}`),

  /** All items of the tree, oldest first. */
  listItems: (id: string) => readAll<Item>(`/v1/conversations/${id}/items`, { order: "asc" }),

  /** Adds at most `MAX_NEW_ITEMS` messages, each after the one before it, the first after `parentId` or at "root". */
  addItems: (id: string, items: { role: string; content: string }[], parentId: string) =>
    call<List<Item>>("POST", `/v1/conversations/${id}/items`, { items, parent_id: parentId }),

  deleteItem: (id: string, itemId: string) => call<unknown>("DELETE", `/v1/conversations/${id}/items/${itemId}`),

  readResponse: (id: string) => call<WireResponse>("GET", `/v1/responses/${id}?include=chatsrv.timing`),
};
