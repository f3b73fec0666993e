/** What drawings on a canvas share: sharp pixels, and the page's colours. */

/** Sizes the canvas for its place on the screen; answers its context in CSS pixels. */
export function sharpContext(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = devicePixelRatio;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

const packed = new Map<string, number>();

/** A CSS colour as one pixel of an `ImageData`. */
export function pixelOf(colour: string): number {
  let pixel = packed.get(colour);
  if (pixel === undefined) {
    const context = new OffscreenCanvas(1, 1).getContext("2d")!;
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    pixel = new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer)[0]!;
    packed.set(colour, pixel);
  }
  return pixel;
}

/** The value that a custom property has here, in the theme of this moment. */
export function colourOf(canvas: HTMLCanvasElement, property: string): string {
  canvas.style.color = `var(${property})`;
  return getComputedStyle(canvas).color;
}
