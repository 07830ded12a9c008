export { assertReady, createImageWorld, hostTools, type ImageWorld, type WorldOptions } from "./image-world.ts";
export { checkDisk, listDisk, readDiskFile, statDisk, type DiskEntry } from "./inspect-disk.ts";
export { blobPath, createLayout, digestOf, type LayoutWriter, type TestImage, type TestLayer, type WrittenImage } from "./oci-writer.ts";
export { writeTar, type TarItem } from "./tar-writer.ts";
export { pushImage, startRegistry } from "./registry.ts";
export { makeBzImage, makeElf, makeModule } from "./kernel-files.ts";
