package tutti_test

import (
	"testing"

	"github.com/tutti-project/tutti"
)

// TestAnAccessIsYAML checks that a word gets quotes if YAML would not read the word as text.
func TestAnAccessIsYAML(t *testing.T) {
	for name, want := range map[string]string{
		"ada": "ada", "linus@example.net": "linus@example.net", "night-shift": "night-shift",
		"*": `"*"`, "null": `"null"`, "on": `"on"`, "1e3": `"1e3"`, "0x1f": `"0x1f"`, "123": `"123"`, "a.1": `"a.1"`, "NO": `"NO"`,
	} {
		a := tutti.Access{To: []string{name}, May: []tutti.Verb{tutti.VerbRun, tutti.VerbData}, Groups: []tutti.GroupName{"web"}, Noop: true, Keys: []string{"a/**"}}
		if got, want := a.String(), "{to: "+want+`, may: [run, data], groups: web, noop: true, keys: ["a/**"]}`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
