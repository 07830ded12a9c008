/** Follows the import of an image or a kernel to its end, showing progress. */
import { isErrorCode, PlatformError } from "@fluxvm/core";
import type { ImageView, KernelView, ObjectClient } from "@fluxvm/sdk";
import type { CommandContext } from "../context.ts";

/** @throws PlatformError what the import failed with */
export async function followImport<View extends ImageView | KernelView>(
  context: CommandContext,
  objects: Pick<ObjectClient<unknown, View>, "follow">,
  started: View,
): Promise<View> {
  const progress = context.progress(started.name);
  const onProgress = (view: View): void => {
    if (view.state !== "importing") return;
    const { phase, done_bytes, total_bytes, message } = view.progress ?? { phase: "starting", done_bytes: 0 };
    progress.update({ phase, doneBytes: done_bytes, totalBytes: total_bytes, message });
  };
  try {
    const view = await objects.follow(started.id, { signal: context.signal, onProgress });
    requireReady(view);
    progress.done("ready");
    return view;
  } finally {
    progress.clear();
  }
}

function requireReady(view: ImageView | KernelView): void {
  if (view.state !== "failed") return;
  const { code = "IMAGE_BUILD_FAILED", message = "the daemon gave no reason" } = view.error ?? {};
  throw new PlatformError(isErrorCode(code) ? code : "INTERNAL", `Cannot import ${view.name}: ${message}`);
}
