package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
)

func TestAServerIsMadeOrNothingIs(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*InitOptions)
		code   tutti.Code
	}{
		"good":     {"it is", func(*InitOptions) {}, ""},
		"listen":   {"no port", func(o *InitOptions) { o.Listen = "nonsense" }, tutti.CodeInvalid},
		"bus":      {"no number", func(o *InitOptions) { o.Bus = ":many" }, tutti.CodeInvalid},
		"operator": {"no name", func(o *InitOptions) { o.Operator = "Ada Lovelace" }, tutti.CodeInvalid},
		"host":     {"nodes would go to tutti:1:7443", func(o *InitOptions) { o.Host = "tutti:1" }, tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := InitOptions{
				Dir: filepath.Join(dir, "server"), Host: "tutti.example.net", Also: []string{"192.0.2.7"},
				Listen: ":7443", Bus: ":7422", Operator: "ada", OperatorDir: filepath.Join(dir, "operator"),
			}
			tc.change(&o)
			if err := InitServer(o); tutti.CodeOf(err) != tc.code {
				t.Fatalf("%s: %v, want code %q", tc.reason, err, tc.code)
			}
			left, err := os.ReadDir(dir)
			if err != nil || (len(left) == 0) != (tc.code != "") {
				t.Errorf("%s: %v is there afterwards, %v", tc.reason, left, err)
			}
		})
	}
}
