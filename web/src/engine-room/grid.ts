/** Where each block lies on the map: rows of equal cells that fill the space there is. */

export interface Grid {
  columns: number;
  /** Side of a cell with its gap, in CSS pixels. */
  pitch: number;
  gap: number;
}

const MAX_PITCH = 40;
const MIN_PITCH = 2;

/** The largest cells with which all blocks fit. */
export function fitGrid(numBlocks: number, width: number, height: number): Grid {
  let pitch = MAX_PITCH;
  while (pitch > MIN_PITCH && Math.ceil(numBlocks / Math.floor(width / pitch)) * pitch > height) pitch -= 0.5;
  return { columns: Math.max(1, Math.floor(width / pitch)), pitch, gap: pitch >= 6 ? 2 : pitch >= 3 ? 1 : 0.5 };
}

export function cornerOf({ columns, pitch }: Grid, block: number): { x: number; y: number } {
  return { x: (block % columns) * pitch, y: Math.floor(block / columns) * pitch };
}

/** The block at a point, or null beside them all. */
export function blockAt({ columns, pitch }: Grid, numBlocks: number, x: number, y: number): number | null {
  const column = Math.floor(x / pitch);
  const block = Math.floor(y / pitch) * columns + column;
  return column >= 0 && column < columns && block >= 0 && block < numBlocks ? block : null;
}
