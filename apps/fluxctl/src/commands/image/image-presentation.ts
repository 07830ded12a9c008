/** How images are shown. */
import { formatBytes } from "@fluxvm/core";
import type { ImageView } from "@fluxvm/sdk";
import type { Presentation } from "../../output/printer.ts";

const bytes = (value: number | undefined): string | undefined => (value === undefined ? undefined : formatBytes(value));

export const IMAGE_PRESENTATION: Presentation<ImageView> = {
  name: (image) => image.name,
  columns: [
    { title: "NAME", value: (image) => image.name },
    { title: "STATE", value: (image) => image.state },
    { title: "KIND", value: (image) => image.kind },
    { title: "SIZE", value: (image) => bytes(image.virtual_size_bytes) },
    { title: "STORED", value: (image) => bytes(image.stored_bytes) },
    { title: "USED BY", value: (image) => image.used_by.length },
    { title: "ID", value: (image) => image.id },
  ],
  details: [
    { title: "Name", value: (image) => image.name },
    { title: "Id", value: (image) => image.id },
    { title: "State", value: (image) => image.state },
    { title: "Error", value: (image) => (image.error === undefined ? undefined : `${image.error.message} (${image.error.code})`) },
    { title: "Source", value: (image) => image.source },
    { title: "Digest", value: (image) => image.digest },
    { title: "Kind", value: (image) => [image.kind, image.format].filter((part) => part !== undefined).join(", ") },
    { title: "Size", value: (image) => bytes(image.virtual_size_bytes) },
    { title: "Stored", value: (image) => bytes(image.stored_bytes) },
    { title: "Entrypoint", value: (image) => image.config?.entrypoint.join(" ") },
    { title: "Command", value: (image) => image.config?.cmd.join(" ") },
    { title: "User", value: (image) => image.config?.user },
    { title: "Used by", value: (image) => image.used_by.join(" ") },
    { title: "Created", value: (image) => image.created_at },
  ],
};
