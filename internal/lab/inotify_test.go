package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	l := limit{setting: filepath.Join(dir, "setting"), before: filepath.Join(dir, "run", "before"), machine: 128, host: 32}
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(l.setting, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	m := Machine{Log: &log}
	for _, step := range []struct {
		reason string
		do     func()
		want   int
		says   string
	}{
		{"there is room", func() { set("8192"); m.raiseLimits([]limit{l}, 10) }, 8192, ""},
		{"nothing was raised", func() { _ = l.restore() }, 8192, ""},
		{"ten hosts", func() { set("128"); m.raiseLimits([]limit{l}, 10) }, 448, "raised from 128 to 448 for 10 hosts"},
		{"a second lab of ten", func() { m.raiseLimits([]limit{l}, 20) }, 768, "raised from 448 to 768 for 20 hosts"},
		{"one of them is down and comes again", func() { m.raiseLimits([]limit{l}, 20) }, 768, ""},
		{"the last one is down", func() { _ = l.restore() }, 128, ""},
		{"a lab again", func() { m.raiseLimits([]limit{l}, 10) }, 448, "raised from 128"},
		{"somebody has changed it meanwhile", func() { set("4096"); _ = l.restore() }, 4096, ""},
		{"nothing of that is left", func() { set("448"); _ = l.restore() }, 448, ""},
	} {
		log.Reset()
		step.do()
		if got, err := l.value(); err != nil || got != step.want {
			t.Errorf("%s: %d, %v, want %d", step.reason, got, err, step.want)
		}
		if (step.says == "") != (log.Len() == 0) || !strings.Contains(log.String(), step.says) {
			t.Errorf("%s: says %q, want %q", step.reason, &log, step.says)
		}
	}
}

// If the kernel's settings cannot be changed, as in a container, the log says what the
// user can do.
func TestALimitThatCannotBeRaisedIsSaid(t *testing.T) {
	const constant = "/proc/sys/kernel/ngroups_max" // nobody may write it
	if _, err := os.Stat(constant); err != nil {
		t.Skip(err)
	}
	var log bytes.Buffer
	Machine{Log: &log}.raiseLimits([]limit{{setting: constant, before: filepath.Join(t.TempDir(), "before"), host: 65537}}, 2)
	want := "2 hosts may need more than the kernel allows, and tutti cannot change that: open " + constant
	if got := log.String(); !strings.Contains(got, want) || !strings.Contains(got, "sysctl -w kernel.ngroups_max=131074") {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestTheLimitsAreThere(t *testing.T) {
	for _, l := range limits {
		if _, err := l.value(); err != nil {
			t.Errorf("%s: %v", l.name(), err)
		}
	}
}

// A small lab does not change the machine's limits, but a large lab does.
func TestManyHostsNeedMoreThanAKernelHas(t *testing.T) {
	const usual = 128
	instances := limits[0]
	if few, many := instances.machine+4*instances.host, instances.machine+20*instances.host; few > usual || many <= usual {
		t.Errorf("4 hosts need %d instances and 20 need %d, a kernel has %d", few, many, usual)
	}
}
