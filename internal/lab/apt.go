package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// archive is one Debian archive as the outer machine's apt knows it.
type archive struct {
	uri      string
	keyring  string // empty: the default of apt and debootstrap
	security bool
}

// debianKeyring is the key of all Debian releases. debootstrap uses it by default.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// archives returns the archives to install from, the main one first. They are the given mirror, or the archives that
// the machine's own apt configuration names.
func archives(ctx context.Context, mirror string) ([]archive, error) {
	if mirror != "" {
		return []archive{{uri: mirror, keyring: existing(debianKeyring)}}, nil
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "Created-By: Packages").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get indextargets: %w", err)
	}
	found := parseTargets(out)
	if len(found) == 0 || found[0].security {
		return nil, tutti.Errorf(tutti.CodeInvalid, "this machine's apt configuration names no Debian archive: say which with `mirror:` in the lab file")
	}
	return found, nil
}

// parseTargets reads the stanzas of `apt-get indextargets`. It keeps Debian's main archive and, if configured, its
// security archive. Before the first apt-get update, a stanza has no label. Then a release that Debian has is enough.
func parseTargets(out []byte) []archive {
	var found []archive
	stanza := map[string]string{}
	end := func() {
		a, ok := asArchive(stanza)
		if ok && !slices.ContainsFunc(found, func(b archive) bool { return b.security == a.security }) {
			found = append(found, a)
		}
		clear(stanza)
	}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		key, value, ok := strings.Cut(s.Text(), ": ")
		if !ok {
			end()
			continue
		}
		stanza[key] = value
	}
	end()
	slices.SortStableFunc(found, func(a, b archive) int { return btoi(a.security) - btoi(b.security) })
	return found
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func asArchive(stanza map[string]string) (archive, bool) {
	release, security := strings.CutSuffix(stanza["Release"], "-security")
	debian := slices.Contains([]string{"Debian", "Debian-Security"}, stanza["Label"]) ||
		stanza["Label"] == "" && slices.Contains(Releases, release)
	if !debian || stanza["Component"] != "main" || strings.Contains(release, "-") {
		return archive{}, false
	}
	a := archive{uri: stanza["Repo-URI"], keyring: stanza["Signed-By"], security: security}
	if !strings.HasPrefix(a.keyring, "/") { // a fingerprint, or empty
		a.keyring = existing(debianKeyring)
	}
	return a, a.uri != ""
}

func existing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// sources is the sources.list of a host of the release. Hosts check with the keyring of their own release, at Debian's
// usual path.
func sources(archives []archive, release string) string {
	var b strings.Builder
	for _, a := range archives {
		if a.security {
			fmt.Fprintf(&b, "deb %s %s-security main\n", a.uri, release)
			continue
		}
		fmt.Fprintf(&b, "deb %s %s main\n", a.uri, release)
		fmt.Fprintf(&b, "deb %s %s-updates main\n", a.uri, release)
	}
	return b.String()
}

// handedOn are settings of the outer machine's apt. Without them, hosts may not reach its archives, or may be refused.
var handedOn = []string{
	"Acquire::http::Proxy", "Acquire::https::Proxy",
	"Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::Retries",
}

// aptSettings is an apt.conf for hosts with the outer machine's proxy and date checks.
func aptSettings(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output()
	if err != nil {
		return "", fmt.Errorf("apt-config dump: %w", err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		key, _, _ := strings.Cut(line, " ")
		if slices.ContainsFunc(handedOn, func(k string) bool { return strings.EqualFold(k, key) }) {
			b.WriteString(line)
		}
	}
	// Descriptions in other languages are half of the data that an update fetches.
	b.WriteString("Acquire::Languages \"none\";\n")
	return b.String(), nil
}

// proxyEnv is apt's proxy as environment for debootstrap, which has no setting for it.
func proxyEnv(settings string) []string {
	for line := range strings.Lines(settings) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.EqualFold(key, "Acquire::http::Proxy") {
			return []string{"http_proxy=" + strings.Trim(value, `";`)}
		}
	}
	return nil
}
