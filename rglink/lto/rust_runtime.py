"""What rustc adds to a final crate and a link of libraries lacks: the allocator's entry points and the panic's end.

rustc generates these only where it makes the final artifact itself (`rustc_codegen_ssa::back::allocator`); from
rlibs and `.rgo` they stay undefined, as plain names or mangled in the made-up crate `__rustc`. The allocator is the
device's malloc and free, which the driver resolves. Device malloc aligns to 16 bytes (CUDA C++ Programming Guide,
"Dynamic Global Memory Allocation"); for more, one that is larger by the alignment is made and the pointer that
malloc gave stands in the eight bytes before the one that Rust gets.
"""

from __future__ import annotations

from rglink.demangle import path_of
from rglink.ir import TRIPLE, Module
from rglink.irtext import quote

_ALLOC = """
define noalias ptr @NAME(i64 %size, i64 %align) #0 {
  %small = icmp ule i64 %align, 16
  br i1 %small, label %plain, label %over
plain:
  %direct = call ptr @malloc(i64 %size)
  ret ptr %direct
over:
  %total = add i64 %size, %align
  %wrapped = icmp ult i64 %total, %size
  br i1 %wrapped, label %none, label %take
take:
  %raw = call ptr @malloc(i64 %total)
  %failed = icmp eq ptr %raw, null
  br i1 %failed, label %none, label %round
round:
  %address = ptrtoint ptr %raw to i64
  %past = add i64 %address, %align
  %negative = sub i64 0, %align
  %rounded = and i64 %past, %negative
  %offset = sub i64 %rounded, %address
  %aligned = getelementptr i8, ptr %raw, i64 %offset
  %slot = getelementptr i8, ptr %aligned, i64 -8
  store ptr %raw, ptr %slot, align 8
  ret ptr %aligned
none:
  ret ptr null
}
"""
_DEALLOC = """
define void @NAME(ptr %pointer, i64 %size, i64 %align) #0 {
  %small = icmp ule i64 %align, 16
  br i1 %small, label %plain, label %over
plain:
  call void @free(ptr %pointer)
  ret void
over:
  %slot = getelementptr i8, ptr %pointer, i64 -8
  %raw = load ptr, ptr %slot, align 8
  call void @free(ptr %raw)
  ret void
}
"""
_REALLOC = """
define noalias ptr @NAME(ptr %pointer, i64 %old, i64 %align, i64 %new) #0 {
  %fresh = call ptr @__rglink_rt_alloc(i64 %new, i64 %align)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %done, label %copy
copy:
  %shrinks = icmp ult i64 %new, %old
  %length = select i1 %shrinks, i64 %new, i64 %old
  call void @llvm.memcpy.p0.p0.i64(ptr %fresh, ptr %pointer, i64 %length, i1 false)
  call void @__rglink_rt_dealloc(ptr %pointer, i64 %old, i64 %align)
  br label %done
done:
  ret ptr %fresh
}
"""
_ALLOC_ZEROED = """
define noalias ptr @NAME(i64 %size, i64 %align) #0 {
  %fresh = call ptr @__rglink_rt_alloc(i64 %size, i64 %align)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %done, label %fill
fill:
  call void @llvm.memset.p0.i64(ptr %fresh, i8 0, i64 %size, i1 false)
  br label %done
done:
  ret ptr %fresh
}
"""
_NOTHING = """
define void @NAME() #0 {
  ret void
}
"""
_ALLOC_ERROR = """
define void @NAME(i64 %size, i64 %align) #1 {
  call void @llvm.trap()
  unreachable
}
"""
_PANIC = """
define void @NAME(ptr %info) #1 {
  call void @llvm.trap()
  unreachable
}
"""
_BODIES = {
    "__rust_alloc": _ALLOC,
    "__rust_dealloc": _DEALLOC,
    "__rust_realloc": _REALLOC,
    "__rust_alloc_zeroed": _ALLOC_ZEROED,
    "__rust_no_alloc_shim_is_unstable_v2": _NOTHING,
    "__rust_alloc_error_handler": _ALLOC_ERROR,
    "rust_begin_unwind": _PANIC,
}
_OWN = {"__rglink_rt_alloc": _ALLOC, "__rglink_rt_dealloc": _DEALLOC}
# No target-cpu: the code is for every architecture.
_FRAME = f"""target triple = "{TRIPLE}"
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)
declare void @llvm.trap()
attributes #0 = {{ convergent nounwind }}
attributes #1 = {{ cold convergent noreturn nounwind }}
"""


def runtime_names() -> frozenset[str]:
    """The plain names of what `define_rust_runtime` can define."""
    return frozenset(_BODIES)


def plain_name(name: str) -> str:
    """The runtime function that `name` stands for (`__rust_alloc` for `_RNv...7___rustc12___rust_alloc`), or ""."""
    plain = path_of(name).removeprefix("__rustc::")
    return plain if plain in _BODIES else ""


def define_rust_runtime(module: Module) -> list[str]:
    """Define what is undefined of rustc's runtime as local functions; returns the names defined, sorted."""
    wanted = sorted(name for name in module.undefined_names() if plain_name(name))
    if not wanted:
        return []
    # `realloc` and `alloc_zeroed` are made of a copy of their own: a crate may define `__rust_alloc` itself.
    parts = [_FRAME, *(_named(body, name) for name, body in _OWN.items())]
    parts += [_named(_BODIES[plain_name(name)], name) for name in wanted]
    title = module.name
    module.link_in(Module.parse_text("".join(parts), "rust runtime"))
    module.name = title
    module.set_linkage([*wanted, *_OWN], "internal")
    module.run("globaldce", "strip-dead-prototypes")
    return wanted


def _named(body: str, name: str) -> str:
    return body.replace("@NAME", quote(name))
