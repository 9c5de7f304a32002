package tutti_test

import (
	"encoding/json"
	"testing"

	"github.com/tutti-project/tutti"
)

func TestACollectorIsWrittenAsPuppetDoes(t *testing.T) {
	cases := []struct{ reason, filter, want string }{
		{"no filter", ``, `Mark <<| |>>`},
		{"one test", `["=","tag","x"]`, `Mark <<| tag == 'x' |>>`},
		{"two", `["and",["!=","title","y"],["=","tag","x"]]`, `Mark <<| title != 'y' and tag == 'x' |>>`},
		{"and in or needs no parentheses", `["or",["and",["=","a","1"],["=","b","2"]],["=","c","3"]]`, `Mark <<| a == '1' and b == '2' or c == '3' |>>`},
		{"or in and does", `["and",["or",["=","a","1"],["=","b","2"]],["=","c","3"]]`, `Mark <<| (a == '1' or b == '2') and c == '3' |>>`},
		{"deeper", `["and",["or",["and",["=","a","1"],["=","b","2"]],["=","c","3"]],["=","d","4"]]`, `Mark <<| (a == '1' and b == '2' or c == '3') and d == '4' |>>`},
		{"null", `["=","a",null]`, `Mark <<| a == undef |>>`},
		{"numbers as they were", `["or",["=","a",1],["=","a",1.50],["=","a",-2e3],["=","a",12345678901234567890]]`, `Mark <<| a == 1 or a == 1.50 or a == -2e3 or a == 12345678901234567890 |>>`},
		{"a number that is text", `["=","a","1"]`, `Mark <<| a == '1' |>>`},
		{"bools", `["and",["=","a",true],["!=","b",false]]`, `Mark <<| a == true and b != false |>>`},
		{"lists and hashes", `["=","a",["x",{"k":[1,null],"j":{}}]]`, `Mark <<| a == ['x', {'j' => {}, 'k' => [1, undef]}] |>>`},
		{"quotes", `["=","title","it's \\ \"so\""]`, `Mark <<| title == 'it\'s \\ "so"' |>>`},
		{"what a terminal would obey", `["=","title","\u001b[2J$x\n\u202e\""]`, `Mark <<| title == "\u{1b}[2J\$x\u{a}\u{202e}\"" |>>`},
		{"a name that is none", `["=","a b|>>\u001b","x"]`, `Mark <<| "a b|>>\u{1b}" == 'x' |>>`},
		{"no filter at all", `["xor",["=","a","1"]]`, `Mark <<| '["xor",["=","a","1"]]' |>>`},
		{"no operands", `["and"]`, `Mark <<| '["and"]' |>>`},
		{"no JSON", "\x1b[", `Mark <<| "\u{1b}[" |>>`},
	}
	for _, tc := range cases {
		q := tutti.Query{Kind: tutti.QueryCollect, Type: "Mark", Filter: json.RawMessage(tc.filter)}
		if got := q.String(); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.reason, got, tc.want)
		}
	}
}
