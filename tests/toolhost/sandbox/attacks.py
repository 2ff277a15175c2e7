"""What a hostile plugin might try. Each attack is one function that raises if it was stopped and returns if it worked.

Loaded by a confined child under `python -I -S`, so it imports the standard library only.
"""

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Scene(NamedTuple):
    """What there is to attack."""

    workspace: str
    outside: str
    """A folder of the same user that is no root; `secret` in it is a file."""
    tcp: int
    tcp6: int
    udp: int
    socket_path: str
    abstract: str
    victim: int
    """The id of a process of the same user."""


Attack = Callable[[Scene], Any]
ATTACKS: dict[str, Attack] = {}
NEEDS_PRIVILEGE: set[str] = set()
"""What not every user can do everywhere, or what would change the machine: not tried without a sandbox."""


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def privileged(function: Attack) -> Attack:
    NEEDS_PRIVILEGE.add(function.__name__)
    return attack(function)


_libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def syscall(x86_64: int, aarch64: int, *arguments: Any) -> int:
    # A bare int would be passed as 32 bits, and the kernel looks at all 64.
    whole = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    return checked(_libc.syscall(x86_64 if os.uname().machine == "x86_64" else aarch64, *whole))


# ---- the network --------------------------------------------------------------------------------------------------


@attack
def connect_by_tcp(scene: Scene) -> None:
    socket.create_connection(("127.0.0.1", scene.tcp), timeout=2).close()


@attack
def connect_by_ipv6(scene: Scene) -> None:
    socket.create_connection(("::1", scene.tcp6), timeout=2).close()


@attack
def send_by_udp(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"secret", ("127.0.0.1", scene.udp))


@attack
def listen_by_tcp(_: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)):
        pass


@attack
def connect_by_socket_with_a_path(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(scene.socket_path)


@attack
def connect_by_abstract_socket(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + scene.abstract)


@attack
def redirect_a_datagram_pair(scene: Scene) -> None:
    """A pair made without `socket` can still be sent elsewhere."""
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendmsg([b"secret"], [], 0, scene.socket_path + ".datagram")


@attack
def open_netlink(_: Scene) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


@privileged
def open_raw_socket(_: Scene) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


# ---- files --------------------------------------------------------------------------------------------------------


@attack
def read_outside(scene: Scene) -> None:
    (Path(scene.outside) / "secret").read_bytes()


@attack
def read_passwords(_: Scene) -> None:
    Path("/etc/passwd").read_bytes()


@attack
def list_outside(scene: Scene) -> None:
    list(Path(scene.outside).iterdir())


@attack
def write_outside(scene: Scene) -> None:
    (Path(scene.outside) / "new").write_bytes(b"x")


@attack
def write_to_tmp(_: Scene) -> None:
    path = Path(f"/tmp/manglecp-attack-{os.getpid()}")
    path.write_bytes(b"x")
    path.unlink()


@attack
def append_outside(scene: Scene) -> None:
    with (Path(scene.outside) / "secret").open("ab") as file:
        file.write(b"x")


@attack
def truncate_outside(scene: Scene) -> None:
    os.truncate(Path(scene.outside) / "secret", 3)


@attack
def delete_outside(scene: Scene) -> None:
    (Path(scene.outside) / "victim").unlink()


@attack
def rename_outside(scene: Scene) -> None:
    (Path(scene.outside) / "secret").rename(Path(scene.outside) / "renamed")


@attack
def make_a_folder_outside(scene: Scene) -> None:
    (Path(scene.outside) / "folder").mkdir()


@attack
def change_mode_outside(scene: Scene) -> None:
    (Path(scene.outside) / "secret").chmod(0o777)


@attack
def change_times_outside(scene: Scene) -> None:
    os.utime(Path(scene.outside) / "secret", (0, 0))


@attack
def change_owner_outside(scene: Scene) -> None:
    os.chown(Path(scene.outside) / "secret", os.getuid(), os.getgid())


@attack
def follow_a_symbolic_link(scene: Scene) -> None:
    link = Path(scene.workspace) / "link"
    link.symlink_to(Path(scene.outside) / "secret")
    link.read_bytes()


@attack
def write_through_a_symbolic_link(scene: Scene) -> None:
    link = Path(scene.workspace) / "link"
    link.symlink_to(scene.outside)
    (link / "new").write_bytes(b"x")


@attack
def climb_with_dots(scene: Scene) -> None:
    (Path(scene.workspace) / ".." / Path(scene.outside).name / "secret").read_bytes()


@attack
def hard_link_into_the_workspace(scene: Scene) -> None:
    inside = Path(scene.workspace) / "inside"
    inside.hardlink_to(Path(scene.outside) / "secret")
    inside.read_bytes()


@attack
def hard_link_out_of_the_workspace(scene: Scene) -> None:
    inside = Path(scene.workspace) / "inside"
    inside.write_bytes(b"x")
    (Path(scene.outside) / "planted").hardlink_to(inside)


@attack
def move_out_of_the_workspace(scene: Scene) -> None:
    inside = Path(scene.workspace) / "inside"
    inside.write_bytes(b"x")
    inside.rename(Path(scene.outside) / "planted")


@attack
def run_as_the_owner(scene: Scene) -> None:
    """Leave a program behind that lends the worker's rights to whoever starts it."""
    program = Path(scene.workspace) / "program"
    program.write_bytes(b"x")
    program.chmod(0o6755)


@attack
def make_a_file_that_runs_as_the_owner(scene: Scene) -> None:
    os.close(os.open(Path(scene.workspace) / "program", os.O_CREAT | os.O_WRONLY, 0o4755))


@attack
def make_a_node_that_runs_as_the_owner(scene: Scene) -> None:
    os.mknod(Path(scene.workspace) / "program", 0o104755)


@attack
def run_as_the_group(scene: Scene) -> None:
    Path(scene.workspace).chmod(0o2755)


@attack
def watch_a_folder_outside(scene: Scene) -> None:
    watching = checked(_libc.inotify_init1(0))
    checked(_libc.inotify_add_watch(watching, os.fsencode(scene.outside), 0x100))


@attack
def watch_the_workspace_by_fcntl(scene: Scene) -> None:
    fcntl.fcntl(os.open(scene.workspace, os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE)


@attack
def lease_a_file(scene: Scene) -> None:
    """Whoever opens it next waits until we let go."""
    file = os.open(Path(scene.workspace) / "file", os.O_CREAT | os.O_RDONLY)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)


@attack
def list_attributes_outside(scene: Scene) -> None:
    os.listxattr(Path(scene.outside) / "secret")


@privileged
def make_a_device(scene: Scene) -> None:
    os.mknod(Path(scene.workspace) / "disk", 0o60600, os.makedev(254, 0))


@privileged
def open_by_handle(_: Scene) -> None:
    syscall(304, 265, -100, None, 0)


# ---- /proc --------------------------------------------------------------------------------------------------------


@attack
def go_round_by_proc_root(scene: Scene) -> None:
    Path(f"/proc/self/root{scene.outside}/secret").read_bytes()


@attack
def read_the_environment_of_another(scene: Scene) -> None:
    Path(f"/proc/{scene.victim}/environ").read_bytes()


@attack
def read_memory_by_proc(_: Scene) -> None:
    Path("/proc/self/mem").open("rb").close()


@attack
def reopen_a_descriptor_by_proc(scene: Scene) -> None:
    """A descriptor that only names a file becomes one that reads it."""
    named = os.open(Path(scene.outside) / "secret", os.O_PATH)
    Path(f"/proc/self/fd/{named}").read_bytes()


@privileged
def write_a_kernel_setting(_: Scene) -> None:
    with Path("/proc/sys/kernel/hostname").open("w") as file:
        file.write("owned")


@attack
def sweep_the_processes(_: Scene) -> None:
    list(Path("/proc").iterdir())


# ---- programs and processes ---------------------------------------------------------------------------------------


@attack
def run_a_program(_: Scene) -> None:
    subprocess.run(["/bin/true"], check=True)


@attack
def run_a_shell(_: Scene) -> None:
    if os.system("true") != 0:
        raise PermissionError


@attack
def replace_oneself(_: Scene) -> None:
    if not os.access("/bin/true", os.X_OK):
        raise FileNotFoundError("/bin/true")
    os.execv("/bin/sh", ["sh", "-c", "echo worked"])


@attack
def run_a_program_from_memory(_: Scene) -> None:
    program = os.memfd_create("program", 0)
    os.write(program, b"#!/bin/sh\necho worked\n")
    os.execve(program, ["program"], {})


@attack
def map_what_was_written_as_code(scene: Scene) -> None:
    """As a loader does with a program, or `ctypes` with a library."""
    with (Path(scene.workspace) / "library").open("w+b") as file:
        file.write(bytes(mmap.PAGESIZE))
        file.flush()
        mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()


@attack
def run_what_was_written(scene: Scene) -> None:
    program = Path(scene.workspace) / "program"
    program.write_text("#!/bin/sh\necho worked\n")
    program.chmod(0o755)
    os.execv(program, ["program"])


@attack
def fork(_: Scene) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@attack
def kill_another(scene: Scene) -> None:
    os.kill(scene.victim, signal.SIGCONT)


@attack
def kill_another_by_thread(scene: Scene) -> None:
    syscall(200, 130, scene.victim, signal.SIGCONT)


@attack
def kill_another_by_descriptor(scene: Scene) -> None:
    signal.pidfd_send_signal(os.pidfd_open(scene.victim), signal.SIGCONT)


@attack
def kill_another_by_owning_a_descriptor(scene: Scene) -> None:
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, scene.victim)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
    fcntl.fcntl(ours, 10, signal.SIGCONT)  # F_SETSIG
    theirs.send(b"x")


@attack
def kill_another_by_owning_a_socket(scene: Scene) -> None:
    ours, _theirs = socket.socketpair()
    fcntl.ioctl(ours, 0x8901, struct.pack("i", scene.victim))  # FIOSETOWN


@attack
def kill_the_parent(_: Scene) -> None:
    os.kill(os.getppid(), 0)


@attack
def limit_another(scene: Scene) -> None:
    resource.prlimit(scene.victim, resource.RLIMIT_CPU, (1000, 1000))


@attack
def slow_another(scene: Scene) -> None:
    os.setpriority(os.PRIO_PROCESS, scene.victim, 19)


@attack
def trace_another(scene: Scene) -> None:
    syscall(101, 117, 0x4206, scene.victim, None, None)  # PTRACE_SEIZE


@attack
def be_traced(_: Scene) -> None:
    syscall(101, 117, 0, 0, None, None)  # PTRACE_TRACEME


@attack
def read_memory_of_another(scene: Scene) -> None:
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("QQ", ctypes.addressof(buffer), 8)
    remote = struct.pack("QQ", _readable_address(scene.victim), 8)
    syscall(310, 270, scene.victim, local, 1, remote, 1, 0)


def _readable_address(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    except PermissionError:
        return 4096  # a guess: what is tried is the call
    return int(next(line for line in lines if " r" in line).partition("-")[0], 16)


@attack
def leave_the_process_group(_: Scene) -> None:
    """Whoever ends the group would then miss us. (The child leads a group already, so it cannot lead a session.)"""
    os.setpgid(0, os.getppid() if os.getsid(0) == os.getpid() else 0)


@attack
def outlive_the_parent(_: Scene) -> None:
    """Whoever started a worker may have asked the kernel to end it as well."""
    checked(_libc.prctl(1, 0, 0, 0, 0))  # PR_SET_PDEATHSIG


@attack
def share_memory_with_others(_: Scene) -> None:
    segment = syscall(29, 194, 0, 4096, 0o600)
    syscall(31, 195, segment, 0, None)


# ---- privileges ---------------------------------------------------------------------------------------------------


@privileged
def mount(scene: Scene) -> None:
    checked(_libc.mount(b"none", os.fsencode(scene.workspace), b"tmpfs", 0, None))


@privileged
def make_the_disk_writable(_: Scene) -> None:
    checked(_libc.mount(None, b"/", None, 32 | 0x1000, None))  # MS_REMOUNT | MS_BIND


@privileged
def unmount(scene: Scene) -> None:
    checked(_libc.umount2(os.fsencode(scene.workspace), 2))


@privileged
def change_the_root(scene: Scene) -> None:
    os.chroot(scene.workspace)


@privileged
def make_a_user_namespace(_: Scene) -> None:
    checked(_libc.unshare(0x1000_0000))


@privileged
def join_a_namespace(_: Scene) -> None:
    syscall(308, 268, 0, 0)


@privileged
def make_namespaces_by_clone(_: Scene) -> None:
    if syscall(56, 220, 0x1000_0000 | signal.SIGCHLD, None, None, None, None) == 0:
        os._exit(0)


@privileged
def become_root(_: Scene) -> None:
    os.setresuid(0, 0, 0)


@privileged
def change_groups(_: Scene) -> None:
    os.setgroups([0])


@privileged
def load_a_kernel_program(_: Scene) -> None:
    syscall(321, 280, 0, None, 0)


@privileged
def load_a_module(_: Scene) -> None:
    syscall(313, 273, 0, b"", 0)


@privileged
def reboot(_: Scene) -> None:
    syscall(169, 142, 0, 0, 0, None)


@privileged
def set_the_clock(_: Scene) -> None:
    syscall(227, 112, 0, None)


@privileged
def use_a_key_ring(_: Scene) -> None:
    syscall(248, 217, b"user", b"manglecp", b"x", 1, -1)


@privileged
def use_io_uring(_: Scene) -> None:
    syscall(425, 425, 1, ctypes.create_string_buffer(256))


@privileged
def count_events(_: Scene) -> None:
    syscall(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0)


@privileged
def handle_page_faults(_: Scene) -> None:
    syscall(323, 282, 1)


@privileged
def type_into_the_terminal(_: Scene) -> None:
    checked(_libc.ioctl(0, 0x5412, b"x"))


# ---- resources ----------------------------------------------------------------------------------------------------


@attack
def take_memory(_: Scene) -> None:
    mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()


@attack
def write_a_huge_file(scene: Scene) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.truncate(os.open(Path(scene.workspace) / "huge", os.O_CREAT | os.O_WRONLY), 1 << 30)


@attack
def open_many_files(_: Scene) -> None:
    for _each in range(500):
        os.dup(0)


@attack
def raise_a_limit(_: Scene) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, max(600, hard)))
    except ValueError as error:
        raise PermissionError from error


@attack
def start_many_threads(_: Scene) -> None:
    ready = threading.Event()
    threads = [threading.Thread(target=ready.wait, daemon=True) for _each in range(400)]
    try:
        for thread in threads:
            thread.start()
    finally:
        ready.set()
