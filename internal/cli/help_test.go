package cli_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tutti-project/tutti/internal/cli"
)

const (
	maxShort     = 70 // characters of a Short
	maxSentence  = 30 // words in a sentence of a Long
	maxUngrouped = 6  // commands in a list that has no headings
	maxExamples  = 3  // lines of an Example
)

// verbs are the words with which a Short may begin. A new command may add another verb.
var verbs = strings.Fields(`Approve Ask Boot Build Cancel Check Compare Copy Count Create Declare Delay Deploy Diagnose Disable Disconnect Enable
	End Explain Find Install Keep List Make Manage Orchestrate Pause Power Print Push Read Reconnect Reject Release
	Remove Replace Restore Resume Revoke Rotate Run Seal Send Set Show Sign Test Trust Undo Verify Watch`)

// notPlain matches words that docs/style.md does not allow in help. TestStyle in ./internal checks all files for more
// such words.
var notPlain = regexp.MustCompile(`(?i)\b(he|him|his|whom|whoever|beside|nevertheless)\b`)

// eachCommand calls the function `do` for every command that the help lists.
func eachCommand(t *testing.T, do func(c *cobra.Command)) {
	t.Helper()
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		seen++
		do(c)
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
	}
	walk(cli.NewRoot(cli.Deps{}))
	if seen < 50 {
		t.Errorf("%d commands: this test sees nothing", seen)
	}
}

// TestHelp checks that each command follows the rules in docs/style.md for help.
func TestHelp(t *testing.T) {
	eachCommand(t, func(c *cobra.Command) {
		texts := []string{c.Short, c.Long}
		if says := wrongShort(c.Short); says != "" {
			t.Errorf("%s: Short %q %s (docs/style.md)", c.CommandPath(), c.Short, says)
		}
		for _, says := range wrongLong(c.Long) {
			t.Errorf("%s: Long: %s (docs/style.md)", c.CommandPath(), says)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) { texts = append(texts, f.Usage) })
		for _, text := range texts {
			if word := notPlain.FindString(text); word != "" {
				t.Errorf("%s: the word %q in %q (docs/style.md)", c.CommandPath(), word, text)
			}
		}
	})
}

// wrongShort returns what is wrong with a command's Short, or an empty text.
func wrongShort(short string) string {
	first, _, _ := strings.Cut(short, " ")
	first = strings.TrimSuffix(first, ",")
	switch {
	case utf8.RuneCountInString(short) > maxShort:
		return "is longer than 70 characters"
	case !slices.Contains(verbs, first):
		return "does not begin with a verb; if " + first + " is one, add it to verbs"
	case strings.HasSuffix(short, "."):
		return "ends with a full stop"
	}
	return ""
}

// wrongLong returns what is wrong with a command's Long. Indented lines are code or tables.
func wrongLong(long string) []string {
	var wrong []string
	var prose []string
	end := func() {
		wrong = append(wrong, wrongSentences(prose)...)
		prose = nil
	}
	for line := range strings.Lines(long) {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, " ") {
			end()
			continue
		}
		prose = append(prose, strings.Fields(line)...)
	}
	end()
	return wrong
}

func wrongSentences(words []string) []string {
	var wrong []string
	for from, i := 0, 0; i < len(words); i++ {
		if !strings.HasSuffix(words[i], ".") && i < len(words)-1 {
			continue
		}
		sentence := strings.Join(words[from:i+1], " ")
		switch n := i + 1 - from; {
		case n > maxSentence:
			wrong = append(wrong, fmt.Sprintf("%d words, at most %d: %s", n, maxSentence, sentence))
		case strings.Contains(sentence, "; "):
			wrong = append(wrong, "two statements: "+sentence)
		}
		from = i + 1
	}
	return wrong
}

// TestHelpHasGroups checks that a long list of commands has headings, and that each command is under one heading.
func TestHelpHasGroups(t *testing.T) {
	eachCommand(t, func(c *cobra.Command) {
		if len(c.Groups()) == 0 && len(c.Commands()) > maxUngrouped {
			t.Errorf("%s: %d commands in one list: add groups", c.CommandPath(), len(c.Commands()))
		}
		for _, sub := range c.Commands() {
			if len(c.Groups()) > 0 && sub.GroupID == "" {
				t.Errorf("%s is in no group", sub.CommandPath())
			}
		}
	})
}

// TestHelpHasExamples checks that each command that does something has an example, and that each line of an example
// is valid.
func TestHelpHasExamples(t *testing.T) {
	eachCommand(t, func(c *cobra.Command) {
		if c.Example == "" {
			if !isGroup(c) {
				t.Errorf("%s has no example", c.CommandPath())
			}
			return
		}
		lines := strings.Split(c.Example, "\n")
		if len(lines) > maxExamples {
			t.Errorf("%s: %d lines of example, at most %d", c.CommandPath(), len(lines), maxExamples)
		}
		own := false
		for _, line := range lines {
			if rest, ok := strings.CutPrefix(line, "  "); !ok || rest != strings.TrimSpace(rest) {
				t.Errorf("%s: %q is not indented by two spaces", c.CommandPath(), line)
			}
			paths, err := commandsOf(line)
			if err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
			}
			own = own || slices.Contains(paths, c.CommandPath())
		}
		if !own {
			t.Errorf("%s: its example shows another command: %q", c.CommandPath(), c.Example)
		}
	})
}

// isGroup reports whether c only groups other commands. A command that only groups others accepts all arguments. So
// it can itself return an error about an unknown command.
func isGroup(c *cobra.Command) bool {
	return c.HasSubCommands() && c.ValidateArgs(strings.Fields("a b c d")) == nil
}

// shellWord matches a word, a quoted word, one of the signs | < >, or a comment.
var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[|<>]|#.*|[^\s|<>'"#][^\s|<>'"]*`)

// commandsOf parses the tutti commands in a shell line as the program would, and returns their paths.
func commandsOf(line string) ([]string, error) {
	var paths []string
	var args []string
	words := append(shellWord.FindAllString(line, -1), "|")
	for i, word := range words {
		switch {
		case strings.HasPrefix(word, "#"), i > 0 && (words[i-1] == "<" || words[i-1] == ">"):
		case !slices.Contains([]string{"|", "<", ">"}, word):
			args = append(args, strings.Trim(word, `'"`))
		case len(args) > 0:
			if args[0] == "tutti" {
				path, err := commandOf(args[1:])
				if err != nil {
					return paths, err
				}
				paths = append(paths, path)
			}
			args = nil
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no command tutti")
	}
	return paths, nil
}

func commandOf(args []string) (string, error) {
	cmd, rest, err := cli.NewRoot(cli.Deps{}).Find(args)
	if err != nil {
		return "", err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return "", err
	}
	if isGroup(cmd) && cmd.Flags().NArg() > 0 {
		return "", fmt.Errorf("no command %q", cmd.Flags().Arg(0))
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return "", err
	}
	return cmd.CommandPath(), cmd.ValidateFlagGroups()
}

func TestCommandsOf(t *testing.T) {
	for _, tc := range []struct{ reason, line, want string }{
		{"a command", "  tutti run deploy --noop", "tutti run"},
		{"a pipe", "  tutti token create --name web-01 | ssh web-01 sudo tutti join", "tutti token create"},
		{"two", "  tutti token create --name 'web-*' | tutti join", "tutti token create,tutti join"},
		{"a quoted expression", `  tutti puppet status --on '"web" in groups | x'`, "tutti puppet status"},
		{"files", "  tutti data set a/b < in.json > out", "tutti data set"},
		{"a comment", "  tutti operator key > ada.pem   # on ada's machine", "tutti operator key"},
		{"a command of its own", "  tutti lab exec web-01 -- ls --all", "tutti lab exec"},
		{"no such flag", "  tutti run deploy --fast", ""},
		{"no such command", "  tutti dance", ""},
		{"an argument too many", "  tutti run deploy again", ""},
		{"flags that exclude each other", "  tutti lab slow web-01 --off --delay 1s", ""},
		{"another program", "  ls", ""},
	} {
		paths, err := commandsOf(tc.line)
		if got := strings.Join(paths, ","); (err == nil) != (tc.want != "") || err == nil && got != tc.want {
			t.Errorf("%s: %q: %q, %v; want %q", tc.reason, tc.line, got, err, tc.want)
		}
	}
}

func TestWrongLong(t *testing.T) {
	for _, tc := range []struct {
		reason, long string
		wrong        int
	}{
		{"short sentences", "One.\nTwo words.\n\nThree.", 0},
		{"as long as it may be", strings.Repeat("x ", maxSentence) + "\n\nx.", 0},
		{"a word too many", strings.Repeat("x ", maxSentence+1), 1},
		{"over lines", strings.Repeat("x\n", maxSentence) + "x.", 1},
		{"a table", strings.Repeat("x\n", maxSentence) + "    x; y\nx.", 0},
		{"two statements", "It runs; it ends.", 1},
	} {
		if wrong := wrongLong(tc.long); len(wrong) != tc.wrong {
			t.Errorf("%s: %q, want %d", tc.reason, wrong, tc.wrong)
		}
	}
}

func TestWrongShort(t *testing.T) {
	for _, tc := range []struct {
		reason, short string
		wrong         bool
	}{
		{"a verb and few words", "List the plans", false},
		{"as long as it may be", "List " + strings.Repeat("x", maxShort-5), false},
		{"one character too many", "List " + strings.Repeat("x", maxShort-4), true},
		{"no verb", "The plans", true},
		{"lower case", "list the plans", true},
		{"a full stop", "List the plans.", true},
		{"nothing", "", true},
	} {
		if says := wrongShort(tc.short); (says != "") != tc.wrong {
			t.Errorf("%s: %q: %q", tc.reason, tc.short, says)
		}
	}
}
