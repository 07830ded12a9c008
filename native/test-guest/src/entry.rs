//! PVH entry: 32-bit protected mode without paging, `ebx` points at the start info. Goes to 64-bit mode with the
//! first 4 GiB mapped one to one in 2 MiB pages, sets a stack and an interrupt table with the timer's handler, and
//! calls `guest_main`. (Entry state and note: the Xen project's PVH boot ABI, docs/misc/pvh.)
use core::arch::global_asm;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .align 4
    .long 4, 8, 18              /* name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .quad pvh_entry

    .section .text.entry, "ax"
    .code32
    .globl pvh_entry
pvh_entry:
    cli
    cld
    mov esp, offset stack_top
    /* page tables: PML4 -> PDPT -> 4 page directories of 2 MiB pages */
    mov edi, offset page_directories
    mov eax, 0x83               /* present, writable, large */
    mov ecx, 2048
2:  mov [edi], eax
    add eax, 0x200000
    add edi, 8
    dec ecx
    jnz 2b
    mov eax, offset page_directories + 3
    mov edi, offset pdpt
    mov ecx, 4
3:  mov [edi], eax
    add eax, 4096
    add edi, 8
    dec ecx
    jnz 3b
    mov eax, offset pdpt + 3
    mov [pml4], eax
    mov eax, offset pml4
    mov cr3, eax
    mov eax, cr4
    or eax, 0x620               /* PAE, and SSE as compiled code expects it */
    mov cr4, eax
    mov ecx, 0xC0000080         /* EFER.LME */
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, cr0
    and eax, 0xFFFFFFFB         /* no FPU emulation */
    or eax, 0x80000003          /* paging, FPU monitoring, protection */
    mov cr0, eax
    lgdt [gdt_pointer]
    push 8
    mov eax, offset long_mode
    push eax
    retf

    .code64
long_mode:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov fs, ax
    mov gs, ax
    mov esp, offset stack_top
    /* the timer's gate, vector 0x20: present, 64-bit interrupt gate */
    mov eax, offset timer_interrupt
    mov word ptr [idt + 0x200], ax
    mov word ptr [idt + 0x202], 8
    mov word ptr [idt + 0x204], 0x8E00
    shr eax, 16
    mov word ptr [idt + 0x206], ax
    lidt [idt_pointer]
    mov edi, ebx
    call {main}
4:  hlt
    jmp 4b

    /* Named by the tables of the core library, which are not loaded. */
    .globl rust_eh_personality
rust_eh_personality:
    ud2

    /* Only wakes `hlt`; acknowledges at the interrupt controller. */
timer_interrupt:
    push rax
    mov al, 0x20
    out 0x20, al
    pop rax
    iretq

    .section .rodata, "a"
    .align 8
gdt:
    .quad 0
    .quad 0x00AF9B000000FFFF    /* code, 64-bit */
    .quad 0x00CF93000000FFFF    /* data */
gdt_pointer:
    .word 23
    .long gdt
    .long 0
    .align 8
idt_pointer:
    .word 0x20F
    .quad idt

    .section .bss, "aw", @nobits
    .align 4096
pml4: .skip 4096
pdpt: .skip 4096
page_directories: .skip 16384
idt: .skip 0x210
    .align 16
    .skip 16384
stack_top:
    .text
"#,
    main = sym crate::guest_main,
);
