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

/** The value that a custom property has here, in the theme of this moment. */
export function colourOf(canvas: HTMLCanvasElement, property: string): string {
  canvas.style.color = `var(${property})`;
  return getComputedStyle(canvas).color;
}
