//go:build e2e

package lab

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traces returns everything on the outer machine that a lab might leave, one line each. traces
// leaves out labs of other tests, because they may come and go during the test. All other things
// are in the result, whatever their names are.
func traces(t *testing.T, m Machine) []string {
	t.Helper()
	var lines []string
	add := func(kind, text string) {
		for line := range strings.Lines(text) {
			lines = append(lines, kind+" "+strings.TrimSpace(line))
		}
	}
	for line := range strings.Lines(readText(t, "/proc/self/mounts")) {
		add("mount", strings.TrimSpace(line)+" "+mountOf(line))
	}
	for _, args := range [][]string{
		{"ip", "-o", "link"}, {"ip", "-o", "addr"}, {"ip", "route", "show", "table", "all"},
	} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		add(strings.Join(args[:2], " "), string(out))
	}
	lines = append(lines, rules(t)...)
	lines = append(lines, namespaces(t)...)
	for _, h := range hierarchies {
		_ = filepath.WalkDir(h, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && strings.Contains(path, "tutti-lab") { // groups of other programs come and go
				lines = append(lines, "cgroup "+path)
			}
			return nil
		})
	}
	lines = append(lines, processes(t, m)...)
	add("ip_forward", forwarding(t, m))
	for _, l := range limits {
		now, err := l.value()
		if err != nil {
			t.Fatal(err)
		}
		if before, _, kept := l.kept(); kept && othersUp(t, m) {
			now = before
		}
		add(l.name(), fmt.Sprint(now))
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return foreign(m, line) })
	slices.Sort(lines)
	return lines
}

// testsEnv is a variable in the environment of each process that the tests start.
// The value of testsEnv is the process number of the tests.
const testsEnv = "LAB_E2E_TESTS"

var hostMountRE = regexp.MustCompile(`\s(\S+)/hosts/\d+/net\s`)

// mountOf returns the name of the lab to which a mount belongs.
func mountOf(line string) string {
	if match := hostMountRE.FindStringSubmatch(line); match != nil {
		return state{dir: match[1]}.bridge()
	}
	return ""
}

// forwarding returns the value of the kernel's setting forwardSetting. If other labs are
// running, forwarding returns the value that the setting will have after the end of the
// other labs.
func forwarding(t *testing.T, m Machine) string {
	t.Helper()
	if text, err := os.ReadFile(forwardBefore); err == nil && othersUp(t, m) {
		return string(text)
	}
	return readText(t, forwardSetting)
}

// othersUp reports whether other labs are running. As long as another lab is running, the kernel's settings keep
// the values that labs need.
func othersUp(t *testing.T, m Machine) bool {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(links, func(l net.Interface) bool { return bridgeRE.MatchString(l.Name) && foreign(m, l.Name) })
}

// The function `rules` returns the lines of the firewall. Each line has the name of its table,
// because only the table shows to which lab the rule belongs.
func rules(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").Output()
	if err != nil {
		t.Fatalf("nft: %v", err)
	}
	var lines []string
	table := ""
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "table ") {
			table = strings.TrimSpace(line)
		}
		lines = append(lines, "nft "+table+" "+strings.TrimSpace(line))
	}
	return lines
}

// namespaces returns the network namespaces of all processes. Each line also has the control groups
// of one process of the namespace, which show to which lab the namespace belongs. A namespace
// outside the labs counts only if a process of this test run created it, because other tests run at
// the same time.
func namespaces(t *testing.T) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/net") // lsns fails if a process ends at that moment
	if err != nil || len(links) == 0 {
		t.Fatalf("%d processes have a network, %v", len(links), err)
	}
	first := map[string]int{} // the oldest process in each namespace, by its number
	for _, link := range links {
		ns, err := os.Readlink(link)
		pid, bad := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil || bad != nil {
			continue // ended meanwhile
		}
		if before, seen := first[ns]; !seen || pid < before {
			first[ns] = pid
		}
	}
	var lines []string
	ours := testsEnv + "=" + os.Getenv(testsEnv)
	for ns, number := range first {
		pid := strconv.Itoa(number)
		groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			continue // ended meanwhile
		}
		id := labIDRE.FindString(string(groups))
		environment, err := os.ReadFile("/proc/" + pid + "/environ")
		if err != nil {
			continue // ended meanwhile
		}
		if id == "" && !slices.Contains(strings.Split(string(environment), "\x00"), ours) {
			continue
		}
		lines = append(lines, "netns "+ns+" "+id)
	}
	return lines
}

// processes returns two kinds of processes: those that name the machine's state directory
// in their command line, and the `sleep` processes that only the tests start.
func processes(t *testing.T, m Machine) []string {
	t.Helper()
	var lines []string
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range dirs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		line := strings.ReplaceAll(string(text), "\x00", " ")
		if strings.Contains(line, m.State) || strings.Contains(line, "sleep 8639") {
			lines = append(lines, fmt.Sprintf("process %s: %s", filepath.Dir(path), line))
		}
	}
	return lines
}

var labIDRE = regexp.MustCompile(`(?:\btl|tutti_lab_|tutti-lab\.)([0-9a-f]{8})`)

// foreign reports whether a trace belongs to another lab. The trace of another lab has an id that
// no lab of this test has.
func foreign(m Machine, line string) bool {
	if strings.Contains(line, DefaultState+"/") {
		return true
	}
	// Other tests use mounts below their own temporary directories.
	if strings.HasPrefix(line, "mount ") && strings.Contains(line, " "+os.TempDir()+"/") && !strings.Contains(line, m.State) && hostMountRE.FindString(line) == "" {
		return true
	}
	match := labIDRE.FindStringSubmatch(line)
	if match == nil {
		return false
	}
	names := []string{"killed", "one", "two"}
	for _, script := range []string{preparesWell, preparesNever, preparesForEver} {
		names = append(names, building{Definition: prepared(script)}.lab().Name)
	}
	for _, name := range names {
		if (state{dir: m.labDir(name)}).id() == match[1] {
			return false
		}
	}
	return true
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
