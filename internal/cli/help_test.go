package cli_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti/internal/cli"
)

const (
	maxShort     = 70 // characters of a Short
	maxUngrouped = 6  // commands in a list without headings
)

// verbs are the first words of all Shorts. A new command may add one.
var verbs = strings.Fields(`Ask Be Boot Bring Build Check Copy Count Cut Delay Deploy Disable Enable End Execute Find Join Keep Let
	List Make Orchestrate Print Push Put Read Remove Replace Rotate Run Say Seal Set Show Sign Take Verify`)

// oldShorts are older than docs/style.md: too long or without a verb. The list only gets shorter.
var oldShorts = []string{
	"tutti audit list", "tutti audit verify", "tutti converge", "tutti explain node", "tutti explain resource",
	"tutti explain value", "tutti lab base", "tutti lab cut", "tutti lab chaos", "tutti lab down",
	"tutti node show", "tutti operator revoke", "tutti pause", "tutti puppet disable", "tutti puppet summary",
	"tutti server init",
}

// eachCommand calls do with every command that help lists.
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

// TestHelp: what docs/style.md says of Short holds for each command.
func TestHelp(t *testing.T) {
	eachCommand(t, func(c *cobra.Command) {
		old := slices.Contains(oldShorts, c.CommandPath())
		switch says := wrongShort(c.Short); {
		case says != "" && !old:
			t.Errorf("%s: Short %q %s (docs/style.md)", c.CommandPath(), c.Short, says)
		case says == "" && old:
			t.Errorf("%s: Short is in order now: take it out of oldShorts", c.CommandPath())
		}
	})
}

// TestHelpHasGroups: long lists of commands have headings, and then each command is under one.
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

// wrongShort says what is wrong with a command's Short.
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
