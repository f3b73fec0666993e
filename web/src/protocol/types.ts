/** The wire types that the page uses: a part of docs/protocol.md. */

export type ServiceTier = "priority" | "default" | "flex";

/** What a key allows. */
export type Role = "user" | "admin";

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  input_tokens_details: { cached_tokens: number };
}

/** What chatsrv tells beyond the OpenAI fields. */
export interface Extras {
  ttft_s?: number | null;
  tokens_per_s?: number | null;
  num_dropped_items?: number;
  saved?: boolean;
}

export interface ErrorBody {
  message: string;
  code: string | null;
  type?: string;
  param?: string | null;
}

/** Code of a refusal: the conversation was deleted. */
export const CONVERSATION_GONE = "conversation_not_found";

/** The page's own codes have no message: it has words for them in every language. */
export const CONNECTION_LOST: ErrorBody = { code: "connection_lost", message: "" };

export type ResponseStatus = "queued" | "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";

export interface WireResponse {
  id: string;
  status: ResponseStatus;
  error?: { code: string; message: string } | null;
  incomplete_details?: { reason: string } | null;
  usage?: Usage | null;
  output?: Item[];
  chatsrv?: Extras;
}

export interface Item {
  id: string;
  type: "message";
  role: "user" | "assistant" | "system" | "developer";
  status: "in_progress" | "completed" | "incomplete";
  content: { type: string; text?: string }[];
  parent_id?: string | null;
  response_id?: string | null;
  created_at?: number;
}

export interface Conversation {
  id: string;
  created_at: number;
  last_used_at: number;
  metadata: Record<string, string>;
}

export interface Model {
  id: string;
  max_model_len: number;
  /** What suits a conversation. */
  sampling: Sampling;
}

export interface List<T> {
  data: T[];
  last_id: string | null;
  has_more: boolean;
}

/** Body of a `response.create`, without its envelope. */
export interface CreateRequest {
  conversation: string;
  /** Item to continue after, or "root". Without `input` the user item of this id is answered again. */
  parent_id: string;
  input?: string;
  instructions?: string;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repetition_penalty?: number;
  max_output_tokens?: number;
  service_tier?: ServiceTier;
  truncation?: "auto" | "disabled";
  include?: string[];
}

export type Sampling = Pick<CreateRequest, "temperature" | "top_p" | "top_k" | "min_p" | "repetition_penalty">;

interface Numbered {
  sequence_number: number;
  stream_id?: string;
}

export type ResponseEvent = Numbered &
  (
    | {
        type:
          | "response.created"
          | "response.queued"
          | "response.in_progress"
          | "response.completed"
          | "response.incomplete"
          | "response.failed"
          | "response.cancelled";
        response: WireResponse;
      }
    | { type: "response.output_item.added" | "response.output_item.done"; output_index: number; item: Item }
    | { type: "response.output_text.delta"; output_index: number; delta: string }
    | { type: "response.output_text.done"; output_index: number; text: string }
    | { type: "response.content_part.added" | "response.content_part.done"; output_index: number }
    | { type: "chatsrv.preempted" | "chatsrv.resumed"; response_id: string }
  );

/** Refuses a request; belongs to no response. */
export interface ErrorEvent {
  type: "error";
  status: number;
  error: ErrorBody;
  stream_id?: string;
}

export type ServerEvent = ResponseEvent | ErrorEvent;

const TERMINAL = new Set(["response.completed", "response.incomplete", "response.failed", "response.cancelled"]);

/** Whether this is the last event of its response. */
export function isTerminal(event: ResponseEvent): boolean {
  return TERMINAL.has(event.type);
}

export function textOf(item: Item): string {
  return item.content.map((part) => part.text ?? "").join("");
}
