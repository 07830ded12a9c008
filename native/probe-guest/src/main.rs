//! Enters 64-bit mode with paging, prints `K`, runs a hundred million iterations, prints `D` and ends the VMM.
//!
//! A software KVM that emulates instructions one by one may get as far as `K`, yet needs minutes for the loop that
//! takes real hardware milliseconds; an ordinary kernel never boots on it. `packages/host` measures the time.
//!
//! ```text
//! PVH entry (32 bit, no paging) ─ page tables for 1 GiB ─ PAE, long mode, paging ─ far jump ─ 64 bit: K, loop, D
//! ```
//! Ports: 0x3f8 is the first serial port, 0xf4 QEMU's isa-debug-exit (exit code 33). Where that is missing, the
//! triple fault at the end resets the machine, and `-no-reboot` ends QEMU.
#![no_std]
#![no_main]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

// The x86 boot protocol cannot be written in Rust: modes, segments and control registers.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18
    .asciz "Xen"
    .long entry32

    .section .tables, "aw", @nobits
    .balign 4096
pml4:   .skip 4096
pdpt:   .skip 4096
pd:     .skip 4096

    .section .probe, "ax", @progbits
    .code32
    .global entry32
entry32:
    cli
    movl $pdpt + 3, %eax
    movl %eax, pml4
    movl $pd + 3, %eax
    movl %eax, pdpt
    movl $pd, %edi
    movl $0x83, %eax            /* present, writable, 2 MiB */
    movl $512, %ecx
1:  movl %eax, (%edi)
    movl $0, 4(%edi)
    addl $0x200000, %eax
    addl $8, %edi
    decl %ecx
    jnz 1b
    movl %cr4, %eax
    orl $0x20, %eax             /* PAE */
    movl %eax, %cr4
    movl $pml4, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      /* EFER */
    rdmsr
    orl $0x100, %eax            /* long mode */
    wrmsr
    movl %cr0, %eax
    orl $0x80000001, %eax       /* paging, protection */
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $entry64

    .code64
entry64:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x3f8, %dx
    movb $'K', %al
    outb %al, %dx
    movb $'\n', %al
    outb %al, %dx
    movl $100000000, %ecx
2:  subq $1, %rcx
    jnz 2b
    movb $'D', %al
    outb %al, %dx
    movb $'\n', %al
    outb %al, %dx
    movw $0xf4, %dx
    movl $16, %eax
    outl %eax, %dx
    lidt no_idt
    ud2
3:  hlt
    jmp 3b

    .balign 8
gdt:
    .quad 0
    .quad 0x00af9a000000ffff    /* 64-bit code */
    .quad 0x00cf92000000ffff    /* data */
gdt_pointer:
    .word 23
    .long gdt
no_idt:
    .word 0
    .quad 0
"#,
    options(att_syntax)
);
