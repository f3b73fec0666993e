import { describe, expect, it } from "vitest";
import { blockAt, cornerOf, fitGrid } from "./grid";

describe("grid", () => {
  it.each([1, 100, 5000, 100_000])("all of %i blocks fit, and each is found at its own place", (numBlocks) => {
    const grid = fitGrid(numBlocks, 1000, 600);
    for (const block of [0, Math.floor(numBlocks / 2), numBlocks - 1]) {
      const { x, y } = cornerOf(grid, block);
      expect(x + grid.pitch).toBeLessThanOrEqual(1000);
      expect(y + grid.pitch).toBeLessThanOrEqual(600);
      expect(blockAt(grid, numBlocks, x + grid.pitch / 2, y + grid.pitch / 2)).toBe(block);
    }
  });

  it("finds nothing beside the blocks", () => {
    const grid = fitGrid(10, 100, 100);
    expect(blockAt(grid, 10, -1, 5)).toBeNull();
    expect(blockAt(grid, 10, 99, 99)).toBeNull();
  });
});
