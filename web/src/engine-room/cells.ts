/** Drawing of blocks as cells: one pixel for each, blown up, so that a hundred thousand cost one image. */

import { cornerOf, type Grid } from "./grid";

/** Cells from this size on have room for a number. */
const NUMBERED_PX = 24;
/** Cells from this size on have room for a mark. */
const MARKED_PX = 6;

const FADED = 60;

/** Draws the cells in these colours; `isFaded` tells which stand back. */
export function drawCells(
  context: CanvasRenderingContext2D,
  grid: Grid,
  pixels: Uint32Array<ArrayBuffer>,
  isFaded: ((block: number) => boolean) | null = null,
): void {
  const numRows = Math.ceil(pixels.length / grid.columns);
  const image = new ImageData(grid.columns, numRows);
  new Uint32Array(image.data.buffer).set(pixels);
  if (isFaded) pixels.forEach((_, block) => void (isFaded(block) && (image.data[block * 4 + 3] = FADED)));
  const small = new OffscreenCanvas(grid.columns, numRows);
  small.getContext("2d")!.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, grid.columns * grid.pitch, numRows * grid.pitch);
  cutGaps(context, grid, numRows);
}

function cutGaps(context: CanvasRenderingContext2D, { columns, pitch, gap }: Grid, numRows: number): void {
  const [width, height] = [columns * pitch, numRows * pitch];
  for (let x = pitch; x <= width; x += pitch) context.clearRect(x - gap, 0, gap, height);
  for (let y = pitch; y <= height; y += pitch) context.clearRect(0, y - gap, width, gap);
}

/** Writes into each cell which block it is, where there is room. */
export function numberCells(
  context: CanvasRenderingContext2D,
  grid: Grid,
  numBlocks: number,
  inkOf: (block: number) => string,
): void {
  if (grid.pitch < NUMBERED_PX) return;
  const side = grid.pitch - grid.gap;
  context.font = `${Math.round(side / 3)}px ui-monospace, monospace`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let block = 0; block < numBlocks; block += 1) {
    const { x, y } = cornerOf(grid, block);
    context.fillStyle = inkOf(block);
    context.fillText(String(block), x + side / 2, y + side / 2 + 1);
  }
}

/** A dot on a block that several sequences hold. */
export function markShared(context: CanvasRenderingContext2D, grid: Grid, block: number, colour: string): void {
  if (grid.pitch < MARKED_PX) return;
  const { x, y } = cornerOf(grid, block);
  const side = grid.pitch - grid.gap;
  const [radius, place] = grid.pitch < NUMBERED_PX ? [side / 5, 0.5] : [side / 10, 0.82];
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x + side * place, y + side * (1 - place), radius, 0, 2 * Math.PI);
  context.fill();
}

export function outlineCell(context: CanvasRenderingContext2D, grid: Grid, block: number, colour: string): void {
  const { x, y } = cornerOf(grid, block);
  const side = grid.pitch - grid.gap;
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.strokeRect(x, y, side, side);
}
