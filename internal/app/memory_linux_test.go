package app

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// smap returns a part of a file /proc/PID/smaps.
func smap(header, anonymous string) string {
	return header + "\nSize:               1144 kB\nRss:                 800 kB\nAnonymous:             " + anonymous + " kB\nVmFlags: rd ex mr mw me sd\n"
}

func TestUnwritten(t *testing.T) {
	const exe = "/usr/local/bin/tutti"
	smaps := smap("00400000-0051e000 r-xp 00000000 fe:00 815                                "+exe, "0") +
		smap("0051e000-0066b000 r--p 0011e000 fe:00 815                                "+exe, "0") +
		smap("0066b000-00688000 r--p 0026b000 fe:00 815                                "+exe, "12") +
		smap("00688000-00690000 rw-p 00288000 fe:00 815                                "+exe, "0") +
		smap("00690000-006b7000 rw-p 00000000 00:00 0 ", "0") +
		smap("7f0000000000-7f0000100000 r-xp 00000000 fe:00 99                           /usr/lib/libc.so.6", "0") +
		smap("7f0000200000-7f0000300000 r-xp 00000000 fe:00 98                           /opt"+exe, "0") +
		smap("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]", "0")
	want := []mapping{{0x400000, 0x51e000}, {0x51e000, 0x66b000}}
	if diff := cmp.Diff(want, unwritten(smaps, exe), cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("only what cannot be written and was not, of this file: -want +got\n%s", diff)
	}
}

// TestGiveBack checks that less of the program's file is in memory after giveBack. The
// program must still work.
func TestGiveBack(t *testing.T) {
	before := residentFile(t)
	giveBack()
	if after := residentFile(t); after >= before {
		t.Errorf("%d KiB of files are resident, before it were %d", after, before)
	}
}

// residentFile returns how many KiB of mapped files are in memory.
func residentFile(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
