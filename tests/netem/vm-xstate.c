/* For vm.sh, on CPUs with AMX only. User Mode Linux saves and restores the registers of its
 * processes with ptrace, in a buffer that is too small for AMX's tiles; the host's kernel then
 * refuses to restore anything. Loaded with LD_PRELOAD, this puts what User Mode Linux gives over
 * the process's whole present state and restores that. The tiles themselves stay switched off. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long ptrace_function(enum __ptrace_request, ...);

/* The first 512 bytes are the legacy area; then comes the bit mask of the parts in use. */
enum { MASK_OFFSET = 512, LARGEST_STATE = 1 << 16 };
static const uint64_t TILES = UINT64_C(3) << 17;

static long restore(ptrace_function *next, pid_t process, const struct iovec *given)
{
    static __thread _Alignas(64) unsigned char state[LARGEST_STATE];
    struct iovec whole = {.iov_base = state, .iov_len = sizeof state};
    long failed = next(PTRACE_GETREGSET, process, (void *)NT_X86_XSTATE, &whole);
    if (failed)
        return failed;
    memcpy(state, given->iov_base, given->iov_len < whole.iov_len ? given->iov_len : whole.iov_len);
    uint64_t mask;
    memcpy(&mask, state + MASK_OFFSET, sizeof mask);
    mask &= ~TILES;
    memcpy(state + MASK_OFFSET, &mask, sizeof mask);
    return next(PTRACE_SETREGSET, process, (void *)NT_X86_XSTATE, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    pid_t process = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    ptrace_function *next = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (uintptr_t)address == NT_X86_XSTATE)
        return restore(next, process, data);
    return next(request, process, address, data);
}
