import assert from "node:assert/strict";
import test from "node:test";
import { createMemoryStore } from "@fluxvm/store/testing";
import { Leases } from "./leases.ts";

test("a lease counts at once and is found again by the next start", async () => {
  const store = createMemoryStore();
  const leases = new Leases("image");
  const change = leases.take("img-1", "vm-1");
  assert.deepEqual(leases.usedBy("img-1"), ["vm-1"]);
  assert.throws(() => leases.requireUnused("img-1", "debian"), {
    code: "IMAGE_IN_USE",
    message: 'Cannot delete image "debian": in use by vm-1',
  });
  await store.commit([change, leases.take("img-1", "vm-2"), leases.take("img-2", "vm-1")]);

  const after = new Leases("image");
  await after.load(store);
  assert.deepEqual(after.usedBy("img-1"), ["vm-1", "vm-2"]);
  assert.deepEqual(after.owners(), ["vm-1", "vm-2"]);
  assert.throws(() => after.requireUnused("img-1", "debian"), /in use by vm-1 and 1 more/);
  const changes = after.release("vm-1");
  assert.equal(changes.length, 2);
  await store.commit(changes);
  assert.deepEqual(after.usedBy("img-2"), []);
  after.requireUnused("img-2", "x");
  assert.deepEqual(after.release("vm-1"), []);
});

test("images and kernels share a collection and not their leases", async () => {
  const store = createMemoryStore();
  const [images, kernels] = [new Leases("image"), new Leases("kernel")];
  await store.commit([images.take("x", "vm-1"), kernels.take("x", "vm-2")]);
  await store.commit([{ kind: "put", collection: "leases", key: "odd", value: { kind: "other" } }]);
  const after = new Leases("kernel");
  await after.load(store);
  assert.deepEqual(after.usedBy("x"), ["vm-2"]);
  assert.throws(() => after.requireUnused("x", "k"), { code: "KERNEL_IN_USE" });
});
