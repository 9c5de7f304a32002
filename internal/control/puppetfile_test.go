package control_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/control"
)

// whole has every form of r10k's documentation that is understood.
const whole = `# the modules of this site
forge "https://forge.example.net"
moduledir 'thirdparty'

mod 'puppetlabs/stdlib', '9.4.1'
mod 'puppetlabs-apt', :latest
mod("puppetlabs/ntp")

mod 'apache',
  :git    => 'https://git.example.net/apache.git',
  :branch => 'docs_experiment', # a comment
  :default_branch => 'main'
mod 'mysql', git: 'git@git.example.net:mysql.git', tag: "v1.0"
mod 'users', :git => 'https://git.example.net/users.git', :commit => '83401079053dca11d61945bd9beef9ecf7576cbf'
mod 'profile', { :git => 'https://git.example.net/profile.git', :ref => 'main', :install_path => 'site' } unless false
`

func TestPuppetfile(t *testing.T) {
	source := strings.Replace(whole, ":install_path => 'site' } unless false", ":install_path => 'site'", 1)
	source = strings.Replace(source, "mod 'profile', {", "mod 'profile',", 1) + "mod 'ours', :git => 'u', :branch => :control_branch\nmod 'local', :local => true\nmod 'head', :git => 'u'; mod 'typed', type: 'git', git: 'u', ref: 'x'\n" +
		"mod 'o-std', type: 'git', source: 'u', version: '2098a17'\nmod 'o/newest', type: :forge, source: 'x', version: :latest\n"
	got, err := control.ParsePuppetfile("Puppetfile", []byte(source), "feature")
	if err != nil {
		t.Fatal(err)
	}
	want := []control.Module{
		{Name: "puppetlabs/stdlib", Dir: "thirdparty/stdlib", Line: 5, Version: "9.4.1"},
		{Name: "puppetlabs-apt", Dir: "thirdparty/apt", Line: 6},
		{Name: "puppetlabs/ntp", Dir: "thirdparty/ntp", Line: 7},
		{Name: "apache", Dir: "thirdparty/apache", Line: 9, Git: "https://git.example.net/apache.git", Ref: "docs_experiment", Kind: "branch", Default: "main"},
		{Name: "mysql", Dir: "thirdparty/mysql", Line: 13, Git: "git@git.example.net:mysql.git", Ref: "v1.0", Kind: "tag"},
		{Name: "users", Dir: "thirdparty/users", Line: 14, Git: "https://git.example.net/users.git", Ref: "83401079053dca11d61945bd9beef9ecf7576cbf", Kind: "commit"},
		{Name: "profile", Dir: "site/profile", Line: 15, Git: "https://git.example.net/profile.git", Ref: "main", Kind: "ref"},
		{Name: "ours", Dir: "thirdparty/ours", Line: 16, Git: "u", Ref: "feature", Kind: "branch"},
		{Name: "local", Dir: "thirdparty/local", Line: 17, Local: true},
		{Name: "head", Dir: "thirdparty/head", Line: 18, Git: "u", Kind: "ref"},
		{Name: "typed", Dir: "thirdparty/typed", Line: 18, Git: "u", Ref: "x", Kind: "ref"},
		{Name: "o-std", Dir: "thirdparty/std", Line: 19, Git: "u", Ref: "2098a17", Kind: "ref"},
		{Name: "o/newest", Dir: "thirdparty/newest", Line: 20},
	}
	if diff := cmp.Diff(want, got.Modules); diff != "" || got.Forge != "https://forge.example.net" {
		t.Errorf("forge %q, modules: -want +got\n%s", got.Forge, diff)
	}
}

// TestPuppetfileRefuses checks that Ruby which is not understood, and wrong modules, are errors with their line.
func TestPuppetfileRefuses(t *testing.T) {
	for source, says := range map[string]string{
		"require 'yaml'\n":              `P:1: "require" is not understood`,
		"mod 'a/b', '1.0.0'\nif true\n": `P:2: "if" is not understood`,
		"x = 1\n":                       `P:1: "=" is not a constant`,
		"mod \"a/#{x}\"\n":              "P:1: the text has no end, or has #{…}",
		"mod 'a/b\n":                    "P:1: the text has no end",
		"mod 'a/b', version\n":          `P:1: "version" is not a constant`,
		"mod 'b'\n":                     `P:1: mod "b": a module of a forge has the name of its owner`,
		"mod 'a/b'\nmod 'c/b'\n":        `P:2: mod "c/b": its directory modules/b is that of the module in line 1`,
		"mod '../x'\n":                  "not the name of a module",
		"mod 'b', git: 'u', tag: 'x', branch: 'y'\n":            "give one of :ref, :branch, :tag and :commit",
		"mod 'b', git: 'u', git: 'v'\n":                         "the option :git is there twice",
		"mod 'b', tag: 'x'\n":                                   "needs :git",
		"mod 'b', git: 'u', commit: 'main'\n":                   "7 to 40 hexadecimal digits",
		"mod 'b', git: 'u', ref: '--upload-pack=x'\n":           "is not a branch, tag or commit",
		"mod 'b', git: 'u', ref: 'a..b:c'\n":                    "is not a branch, tag or commit",
		"mod 'b', svn: 'u'\n":                                   "the option :svn is not understood",
		"mod 'b', git: 'u', install_path: '../../etc'\n":        "is not a directory inside the environment",
		"moduledir '/etc'\n":                                    "is not a directory inside the environment",
		"mod 'b', git: 'u', branch: :control_branch\n":          "a commit without a branch is deployed",
		"mod('a/b'\nmod 'c/d'\n":                                "P:",
		"mod 'a/b',\n":                                          "P:1: the file ends",
		"mod 'a/b', '1.0.0', '2.0.0'\n":                         "a name is needed, and at most a version",
		"mod 'a/b' do\n":                                        `"do" is not understood`,
		"forge 'x', 'y'\n":                                      `"forge" is not understood`,
		"mod 'b', {:git => 'u'}\n":                              `"{" is not a constant`,
		"mod 'b', git: 'u', 'x'\n":                              "after the options",
		"mod 'b', source: 'u', ref: 'x'\n":                      "the option :source is not understood",
		"mod 'b', type: 'git', git: 'u', source: 'v'\n":         "give one of :git and :source",
		"mod 'b', type: 'svn'\n":                                "modules of type svn are not supported",
		"# only\n" + strings.Repeat("mod 'a/m0'\n", 2) + "\x00": "P:4",
	} {
		_, err := control.ParsePuppetfile("P", []byte(source), "")
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", source, err, says)
		}
	}
}

// FuzzPuppetfile checks that no text makes the reader crash or lead out of the environment.
func FuzzPuppetfile(f *testing.F) {
	f.Add(whole)
	f.Add("mod 'a', {:b=>:c, 'd': \"e\"}\n")
	f.Fuzz(func(t *testing.T, source string) {
		got, err := control.ParsePuppetfile("P", []byte(source), "main")
		if err != nil && tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%v: code %q", err, tutti.CodeOf(err))
		}
		for _, m := range got.Modules {
			if m.Dir == "" || strings.HasPrefix(m.Dir, "/") || strings.HasPrefix(m.Dir, "..") || strings.HasPrefix(m.Ref, "-") {
				t.Errorf("%+v leads out of the environment", m)
			}
		}
	})
}
