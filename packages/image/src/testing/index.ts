export { createImageWorld, hostTools, type ImageWorld, type WorldOptions } from "./image-world.ts";
export { blobPath, createLayout, digestOf, type LayoutWriter, type TestImage, type TestLayer, type WrittenImage } from "./oci-writer.ts";
export { writeTar, type TarItem } from "./tar-writer.ts";
