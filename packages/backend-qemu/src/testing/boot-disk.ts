/** A disk whose own boot loader is 80 bytes: says a word on the serial port and powers the machine off. */

const SECTOR = 512;

/**
 * A boot sector as a PC's firmware starts it: real mode at 0x7c00. `mov si, text; lodsb; out 0x3f8` until a zero, then
 * `out 0x604, 0x2000`, which powers q35 off (see native/test-guest).
 */
export function createBootSector(text: string): Buffer {
  const code = Buffer.from([
    0xfa, // cli
    0x31,
    0xc0,
    0x8e,
    0xd8, // xor ax, ax; mov ds, ax
    0xfc, // cld
    0xbe,
    0x40,
    0x7c, // mov si, 0x7c40
    0xac, // next: lodsb
    0x84,
    0xc0, // test al, al
    0x74,
    0x06, // jz done
    0xba,
    0xf8,
    0x03, // mov dx, 0x3f8
    0xee, // out dx, al
    0xeb,
    0xf5, // jmp next
    0xba,
    0x04,
    0x06, // done: mov dx, 0x604
    0xb8,
    0x00,
    0x20, // mov ax, 0x2000
    0xef, // out dx, ax
    0xf4, // hlt
    0xeb,
    0xfd, // jmp to hlt
  ]);
  const sector = Buffer.alloc(SECTOR);
  code.copy(sector, 0);
  sector.write(`${text}\0`, 0x40, "latin1");
  sector.writeUInt16LE(0xaa55, SECTOR - 2);
  return sector;
}
