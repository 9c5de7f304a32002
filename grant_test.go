package tutti_test

import (
	"testing"

	"github.com/tutti-project/tutti"
)

func TestValidatePattern(t *testing.T) {
	for _, tc := range []struct {
		reason, pattern string
		valid           bool
	}{
		{"a plain key is a pattern", "swift/rings/object", true},
		{"any depth", "swift/rings/**", true},
		{"everything", "**", true},
		{"hiera keys have colons", "shared/hiera/swift::port", true},
		{"nothing", "", false},
		{"no key before the stars", "/**", false},
		{"stars only at the end", "swift/**/x", false},
		{"stars are a part of their own", "swift/rings**", false},
		{"one star means nothing", "swift/*", false},
		{"three stars", "swift/***", false},
		{"stars twice", "swift/**/**", false},
		{"an empty part", "swift//**", false},
		{"two slashes before the stars", "swift///**", false},
		{"upwards", "swift/../**", false},
		{"a trailing slash", "swift/", false},
	} {
		if err := tutti.ValidatePattern(tc.pattern); (err == nil) != tc.valid {
			t.Errorf("%s: ValidatePattern(%q): got error %v, want valid %v", tc.reason, tc.pattern, err, tc.valid)
		}
	}
}

func TestMatchPattern(t *testing.T) {
	for _, tc := range []struct {
		reason, pattern, key string
		want                 bool
	}{
		{"the key itself", "a/b", "a/b", true},
		{"a key below is another key", "a/b", "a/b/c", false},
		{"one part below", "a/**", "a/b", true},
		{"any depth", "a/**", "a/b/c/d", true},
		{"not the parent itself", "a/**", "a", false},
		{"parts are whole", "node/web/**", "node/web.example.net/x", false},
		{"everything", "**", "a/b", true},
	} {
		if got := tutti.MatchPattern(tc.pattern, tc.key); got != tc.want {
			t.Errorf("%s: MatchPattern(%q, %q): got %v, want %v", tc.reason, tc.pattern, tc.key, got, tc.want)
		}
	}
}

func TestDangerousPattern(t *testing.T) {
	for _, tc := range []struct {
		reason, pattern string
		want            bool
	}{
		{"everything", "**", true},
		{"hiera of a node", "node/web/hiera/port", true},
		{"all that is a node's", "node/web/**", true},
		{"all nodes", "node/**", true},
		{"hiera of all nodes", "shared/hiera/**", true},
		{"a key of it", "shared/hiera/port", true},
		{"what contains it", "shared/**", true},
		{"shared, but not hiera's", "shared/rings/**", false},
		{"begins like it", "shared/hieratic/**", false},
		{"one shared key", "shared/hiera", false},
		{"a path of its own", "swift/rings/**", false},
	} {
		if got := tutti.DangerousPattern(tc.pattern); got != tc.want {
			t.Errorf("%s: DangerousPattern(%q): got %v, want %v", tc.reason, tc.pattern, got, tc.want)
		}
	}
}

func TestValidateType(t *testing.T) {
	for _, tc := range []struct {
		reason, name string
		valid        bool
	}{
		{"one part", "Ring_object_device", true},
		{"several parts", "Swift::Ringsync", true},
		{"lower case", "swift::ringsync", false},
		{"a lower-case part", "Swift::ringsync", false},
		{"capitals inside", "RingDevice", false},
		{"a reference", "File[/x]", false},
		{"nothing", "", false},
	} {
		if err := tutti.ValidateType(tc.name); (err == nil) != tc.valid {
			t.Errorf("%s: ValidateType(%q): got error %v, want valid %v", tc.reason, tc.name, err, tc.valid)
		}
	}
}
