//go:build e2e

package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// leadPage is the page that TestLead follows. The test takes fleet files, commands and the class from it.
const leadPage = "../docs/howto/adopt.md"

// A guide is one section of the page: its code blocks by their language, in the order of the page.
type guide map[string][]string

var blockRE = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// readGuide reads the section of the page that begins with "## NUMBER.".
func readGuide(t *testing.T, number string) guide {
	t.Helper()
	text, err := os.ReadFile(leadPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+number+". ")
	if !found {
		t.Fatalf("%s has no section %s", leadPage, number)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	g := guide{}
	for _, m := range blockRE.FindAllStringSubmatch(strings.ReplaceAll(section, "example.net", "site.test"), -1) {
		g[m[1]] = append(g[m[1]], m[2])
	}
	return g
}

// The method `block` returns a block of the section.
func (g guide) block(t *testing.T, language string, number int) string {
	t.Helper()
	if number >= len(g[language]) {
		t.Fatalf("the section has %d blocks of %s, want more than %d", len(g[language]), language, number)
	}
	return g[language][number]
}

// The method `commands` returns the commands of all console blocks, without comments.
func (g guide) commands() []string {
	var out []string
	for line := range strings.Lines(strings.Join(g["console"], "")) {
		if command, found := strings.CutPrefix(line, "$ "); found {
			command, _, _ = strings.Cut(command, " # ")
			out = append(out, strings.TrimSpace(command))
		}
	}
	return out
}

// The function `amend` returns a fleet file in which the keys of a later block of the page replace the same keys.
func amend(file, block string) string {
	keys := func(text string) (names []string, parts map[string]string) {
		parts = map[string]string{}
		for line := range strings.Lines(text) {
			if line[0] != ' ' {
				name, _, _ := strings.Cut(line, ":")
				names = append(names, name)
			}
			parts[names[len(names)-1]] += line
		}
		return names, parts
	}
	names, parts := keys(file)
	more, replaced := keys(block)
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		parts[name] = replaced[name]
	}
	var out strings.Builder
	for _, name := range names {
		out.WriteString(parts[name])
	}
	return out.String()
}

// A leadOperator runs commands of the page as a shell does, in a directory with the fleet file.
type leadOperator struct {
	dir string
	env []string
}

func newLeadOperator(t *testing.T, credentials string) *leadOperator {
	t.Helper()
	o := &leadOperator{dir: t.TempDir()}
	program, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(program, filepath.Join(bin, "tutti")); err != nil {
		t.Fatal(err)
	}
	o.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TUTTI_OPERATOR="+credentials)
	return o
}

// The method `write` writes a file into the operator's directory.
func (o *leadOperator) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The method `run` runs a command and returns what it prints. The command must end with one of the exit codes.
func (o *leadOperator) run(t *testing.T, command string, codes ...int) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = o.dir, o.env
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	t.Logf("$ %s\n%s", command, said.String())
	if code := cmd.ProcessState.ExitCode(); !slices.Contains(codes, code) {
		t.Fatalf("%s: exit code %d, want one of %v", command, code, codes)
	}
	return said.String()
}

var (
	optionRE = map[string]*regexp.Regexp{
		"server": regexp.MustCompile(`--server (\S+)`),
		"pin":    regexp.MustCompile(`--pin (\S+)`),
	}
	parameterRE = regexp.MustCompile(`(server|pin|digest)( *=> )'[^']*'`)
)

// The function `fillClass` returns the class of the page, in which the values of the site replace the page's values.
func fillClass(class string, values map[string]string) string {
	return parameterRE.ReplaceAllStringFunc(class, func(text string) string {
		m := parameterRE.FindStringSubmatch(text)
		return m[1] + m[2] + "'" + values[m[1]] + "'"
	})
}
