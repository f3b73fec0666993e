import { describe, expect, it } from "vitest";
import { DEFAULT_SETTINGS, MAX_INSTRUCTIONS, fromMetadata, longestAnswer, samplingFields, toMetadata, type Settings } from "./settings";

const settings: Settings = {
  instructions: "Answer in verse. ".repeat(100),
  temperature: 0,
  topP: 0.9,
  repetitionPenalty: 1.2,
  maxTokens: 200,
  serviceTier: "flex",
  numAnswers: 3,
};

describe("metadata", () => {
  it("keeps all settings within the limits of the protocol", () => {
    const metadata = toMetadata("A title", { ...settings, instructions: "x".repeat(MAX_INSTRUCTIONS) });
    expect(Object.keys(metadata).length).toBeLessThanOrEqual(16);
    for (const value of Object.values(metadata)) expect(value.length).toBeLessThanOrEqual(512);
    expect(fromMetadata(toMetadata("A title", settings))).toEqual(settings);
  });

  it("reads what other clients wrote as defaults", () => {
    expect(fromMetadata({})).toEqual(DEFAULT_SETTINGS);
    expect(fromMetadata({ settings: "not json" })).toEqual(DEFAULT_SETTINGS);
    expect(fromMetadata({ settings: "null" })).toEqual(DEFAULT_SETTINGS);
  });
});

describe("longestAnswer", () => {
  it("leaves room for the question", () => {
    expect(longestAnswer(8192)).toBe(4096);
    expect(longestAnswer(1)).toBe(1);
  });
});

describe("samplingFields", () => {
  it("leaves out what is not set and takes what is recommended", () => {
    expect(samplingFields(DEFAULT_SETTINGS, { temperature: 0.3, top_k: 20 })).toEqual({
      temperature: 0.3,
      top_k: 20,
      service_tier: "default",
      truncation: "auto",
      include: ["chatsrv.timing", "chatsrv.notices"],
    });
  });

  it("sends zero as zero", () => {
    const recommended = { temperature: 0.3, top_p: 0.5, repetition_penalty: 1.1 };
    const expected = { temperature: 0, top_p: 0.9, repetition_penalty: 1.2, max_output_tokens: 200 };
    expect(samplingFields(settings, recommended)).toMatchObject(expected);
  });
});
