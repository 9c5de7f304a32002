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

// traces are what a lab may leave on the outer machine, one line each. Labs of
// others that come and go meanwhile are left out; everything else counts,
// whatever its name.
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
			if err == nil && e.IsDir() {
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

// testsEnv, with the number of the tests' process, is in the environment of each
// process that they begin.
const testsEnv = "LAB_E2E_TESTS"

var hostMountRE = regexp.MustCompile(`\s(\S+)/hosts/\d+/net\s`)

// mountOf is a name of the lab that a mount belongs to.
func mountOf(line string) string {
	if match := hostMountRE.FindStringSubmatch(line); match != nil {
		return state{dir: match[1]}.bridge()
	}
	return ""
}

// forwarding is the kernel's setting, or what it will be again when the labs
// of others are down.
func forwarding(t *testing.T, m Machine) string {
	t.Helper()
	if text, err := os.ReadFile(forwardBefore); err == nil && othersUp(t, m) {
		return string(text)
	}
	return readText(t, forwardSetting)
}

// othersUp reports whether labs of others are up, which have raised settings, too.
func othersUp(t *testing.T, m Machine) bool {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(links, func(l net.Interface) bool { return bridgeRE.MatchString(l.Name) && foreign(m, l.Name) })
}

// rules are the lines of the firewall, each with the table that it is in: that
// alone tells whose it is.
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

// namespaces are those of the network that a process is in, each with the control
// groups of that process: they tell whose it is. One outside the labs counts only
// if a program of this test run began its process: other tests run beside this one.
func namespaces(t *testing.T) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/net") // lsns fails if a process ends while it looks
	if err != nil || len(links) == 0 {
		t.Fatalf("%d processes have a network, %v", len(links), err)
	}
	first := map[string]int{} // the process of each that has been there the longest, by its number
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

// processes are those that name the machine's state directory in their command
// line, and those that sleep as only the tests do.
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

// foreign tells whether a trace is another lab's: it has the id of one, and not
// of one of m. Counters that change by themselves are foreign too.
func foreign(m Machine, line string) bool {
	if strings.Contains(line, DefaultState+"/") {
		return true
	}
	// Other tests mount what they need below their own temporary directories.
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
