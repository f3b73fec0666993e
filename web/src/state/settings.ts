/**
 * What is set per conversation, and how it is kept in the conversation's metadata.
 *
 * Metadata holds 16 pairs whose values have at most 512 characters, so a system prompt is cut into numbered pieces.
 */

import type { CreateRequest, Sampling, ServiceTier } from "../protocol/types";

export interface Settings {
  instructions: string;
  /** null takes what is recommended for the model, or leaves the choice to the server. */
  temperature: number | null;
  topP: number | null;
  repetitionPenalty: number | null;
  maxTokens: number | null;
  serviceTier: ServiceTier;
  /** Answers to each question, side by side. */
  numAnswers: number;
}

export const DEFAULT_SETTINGS: Settings = {
  instructions: "",
  temperature: null,
  topP: null,
  repetitionPenalty: null,
  maxTokens: null,
  serviceTier: "default",
  numAnswers: 1,
};

export const MAX_ANSWERS = 4;

/** The longest answer to be asked for, in tokens: the other half is left to the conversation, which must fit as well. */
export function longestAnswer(maxModelLen: number): number {
  return Math.max(1, Math.floor(maxModelLen / 2));
}

const PIECE_LENGTH = 512;
const MAX_PIECES = 8;
export const MAX_INSTRUCTIONS = PIECE_LENGTH * MAX_PIECES;

export function toMetadata(title: string, { instructions, ...sampling }: Settings): Record<string, string> {
  const metadata: Record<string, string> = { title, settings: JSON.stringify(sampling) };
  for (let number = 0; number * PIECE_LENGTH < Math.min(instructions.length, MAX_INSTRUCTIONS); number += 1) {
    metadata[`instructions_${number}`] = instructions.slice(number * PIECE_LENGTH, (number + 1) * PIECE_LENGTH);
  }
  return metadata;
}

export function fromMetadata(metadata: Record<string, string>): Settings {
  let instructions = "";
  for (let number = 0; number < MAX_PIECES; number += 1) instructions += metadata[`instructions_${number}`] ?? "";
  return { ...DEFAULT_SETTINGS, ...readSampling(metadata.settings), instructions };
}

/** Other clients write metadata as well: what is not ours is ignored. */
function readSampling(text: string | undefined): Partial<Settings> {
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** The fields of a request that say how to answer; `recommended` holds where nothing else is set. */
export function samplingFields(settings: Settings, recommended: Sampling): Partial<CreateRequest> {
  return {
    ...recommended,
    ...(settings.instructions.trim() ? { instructions: settings.instructions } : {}),
    ...(settings.temperature !== null ? { temperature: settings.temperature } : {}),
    ...(settings.topP !== null ? { top_p: settings.topP } : {}),
    ...(settings.repetitionPenalty !== null ? { repetition_penalty: settings.repetitionPenalty } : {}),
    ...(settings.maxTokens !== null ? { max_output_tokens: settings.maxTokens } : {}),
    service_tier: settings.serviceTier,
    truncation: "auto",
    include: ["chatsrv.timing", "chatsrv.notices"],
  };
}
