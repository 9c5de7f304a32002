//go:build e2e

package e2e_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/lab"
)

// A listing is the files of a host by their paths, with type, mode, owner, size, time and content; also its units, users
// and groups. A directory has no time, because each file that comes and goes changes it.
type listing map[string]string

// readListing lists a host's files, without those of the kernel and of PostgreSQL. Of files in memory it lists Tutti's only.
func readListing(t *testing.T, h *lab.Host) listing {
	t.Helper()
	out := sh(t, h, `without='-path /proc -o -path /sys -o -path /run -o -path /dev -o -path /var/lib/postgresql'
		find / -xdev \( $without \) -prune -o \( -type d -printf 'dir %m %u %g\t%p\n' \) -o \( -not -type d -printf '%y %m %u %g %s %T@ %l\t%p\n' \)
		find /run /dev/shm -path '*tutti*' -printf '%y\t%p\n'
		find /etc /root /opt /srv /usr/local /var -xdev \( $without \) -prune -o -type f -exec sha256sum {} + | sed 's/  /\t/'
		systemctl list-unit-files --no-legend | awk '{print $2 "\tunit " $1}'
		getent passwd | awk '{print $0 "\tuser " $0}'; getent group | awk '{print $0 "\tgroup " $0}'
		crontab -l 2>&1 | awk '{print $0 "\tcrontab of root"}'`)
	all := listing{}
	for line := range strings.Lines(out) {
		what, path, found := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !found {
			t.Fatalf("%s: a line without a tab: %q", h.Name, line)
		}
		all[path] += what + "; "
	}
	return all
}

// changedSince lists the paths that are different from an earlier listing, with + for new paths and - for those that are gone.
func (is listing) changedSince(was listing) []string {
	var out []string
	for path, what := range is {
		if before, found := was[path]; !found {
			out = append(out, "+ "+path)
		} else if before != what {
			out = append(out, "~ "+path)
		}
	}
	for path := range was {
		if _, found := is[path]; !found {
			out = append(out, "- "+path)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return out
}

// A permit names paths that may change, and says who changes them.
type permit struct {
	paths *regexp.Regexp
	who   string
}

func permitted(who, paths string) permit { return permit{regexp.MustCompile("^(" + paths + ")$"), who} }

var (
	// Each run of Puppet writes these paths, whoever starts it.
	byPuppet = permitted("runs of Puppet", `/var/cache/puppet/(state|client_data|public)(/.*)?`)
	// Pluginsync copies the plugins of the environment to the node.
	byPluginsync = permitted("pluginsync", `/var/cache/puppet/lib(/.*)?`)
	// The site's own code manages these files.
	byTheSite = permitted("the site's code", `/etc/site(/.*)?`)
	// The Puppet Server keeps the facts that a node sends with the request of its catalog.
	byTheServer = permitted("the Puppet Server", `/var/lib/puppetserver/server_data/facts/.*`)
	// Somebody has deployed code.
	byDeploy = permitted("r10k", `/etc/puppet/code/environments(/.*)?`)
	// The system writes these files at any time.
	bySystem = permitted("the system", `/var/log/.*|/var/lib/systemd/(random-seed|timers/.*|timesync/.*)|/var/lib/dpkg/(status|status-old|available|available-old|lock.*|triggers/.*)`)

	byAgent   = permitted("the agent", `(/var/lib|/run)/tutti(-agent)?(/.*)?|(/run/systemd/(units|transient)/(invocation:)?|unit )tutti-(agent\.service|warm-\w+\.scope)`)
	byClass   = permitted("the class tutti::agent", `/usr/local/bin/tutti|/etc/systemd/system/(multi-user\.target\.wants/)?tutti-agent\.service|unit tutti-agent\.service`)
	byPackage = permitted("the package", `/usr/bin/tutti|/usr/lib/systemd/system/tutti-\w+\.(service|timer)|/etc/systemd/system/multi-user\.target\.wants/tutti-agent\.service|/usr/share/doc/tutti(/.*)?|/var/lib/dpkg/info/tutti\..*|unit tutti-\w+\.(service|timer)`)
)

// checkFiles compares the files of a host with an earlier time. Only permitted paths may be different.
func checkFiles(t *testing.T, h *lab.Host, was listing, permits ...permit) {
	t.Helper()
	permits = append(permits, bySystem)
	covered := map[string][]string{}
	var left []string
	for _, path := range readListing(t, h).changedSince(was) {
		i := slices.IndexFunc(permits, func(p permit) bool { return p.paths.MatchString(path[2:]) })
		if i < 0 {
			left = append(left, path)
			continue
		}
		covered[permits[i].who] = append(covered[permits[i].who], path)
	}
	for _, p := range permits {
		t.Logf("%s: %s changed %d paths: %s", h.Name, p.who, len(covered[p.who]), some(covered[p.who]))
	}
	if len(left) > 0 {
		t.Errorf("%s: %d other paths have changed:\n%s", h.Name, len(left), strings.Join(left[:min(40, len(left))], "\n"))
	}
}

// The function `some` returns the first paths as text.
func some(paths []string) string {
	const most = 12
	if len(paths) > most {
		return fmt.Sprintf("%s, …", strings.Join(paths[:most], ", "))
	}
	return strings.Join(paths, ", ")
}
