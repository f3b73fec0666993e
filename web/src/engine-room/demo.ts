/**
 * A small load that makes the engine show what it can do: requests that share a long beginning (paging and the prefix
 * cache), one with several answers (sharing and copy-on-write), and an urgent one that comes late (preemption, where
 * blocks are few).
 */

import type { ServiceTier } from "../protocol/types";

const RULES = `You are a patient guide who explains how a language model is served. ${"Use short sentences and one example. ".repeat(12)}`;

const QUESTIONS = [
  "What is a token?",
  "What is a block of keys and values?",
  "Why are blocks shared?",
  "What happens when the memory is full?",
  "Why does the second question answer faster?",
];

interface Ask {
  question: string;
  priority?: ServiceTier;
  num?: number;
}

/** Runs to its end, or until `signal` aborts it. */
export async function runDemo(signal: AbortSignal): Promise<void> {
  const asks: Ask[] = QUESTIONS.map((question) => ({ question, priority: "flex" }));
  const late: Ask[] = [
    { question: "Tell a very short story about a paged cache.", num: 3 },
    { question: "Hurry: what is preemption?", priority: "priority" },
  ];
  const running = asks.map((ask) => send(ask, signal));
  for (const ask of late) {
    await pause(1500, signal);
    running.push(send(ask, signal));
  }
  await Promise.allSettled(running);
}

async function send({ question, priority = "default", num = 1 }: Ask, signal: AbortSignal): Promise<void> {
  const messages = [
    { role: "system", content: RULES },
    { role: "user", content: question },
  ];
  const classes: Record<ServiceTier, number> = { priority: -1, default: 0, flex: 1 };
  const length = { min_tokens: 200, max_tokens: 256 };
  const body = { messages, n: num, ...length, temperature: 0.8, priority: classes[priority] };
  const headers = { "content-type": "application/json" };
  const response = await fetch("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  await response.arrayBuffer();
}

function pause(duration_ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, duration_ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
