export { createFakeHostHelper, FAKE_BOOT_ID, type FakeHostHelper, type FakeProcess } from "./fake-host-helper.ts";
export { copyNode, findNativeBinary, requireKvm, requireKvmDevice, requireRoot, requireTool, requireVsock } from "./gates.ts";
