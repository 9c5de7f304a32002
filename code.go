package tutti

import (
	"io/fs"
	"path"
	"strings"
)

// SignedCode is a manifest together with the signature of a code key. The digest of the manifest is
// the digest of the code.
type SignedCode struct {
	Manifest []byte `json:"manifest"`
	// Signature covers manifest and environment only. Agents of release 0.2.0 and older check this
	// signature.
	Signature []byte `json:"signature"`
	// Statement is of kind StatementCode. Statement is nil if release 0.2.0 or older pushed the code.
	Statement *Statement `json:"statement,omitempty"`
}

// CodePush brings code. Reaction comes from the fleet file that is pushed together with the code. If
// Reaction is nil, the server uses the reaction of its present fleet file.
type CodePush struct {
	SignedCode
	Reaction *CodeReaction `json:"reaction,omitempty"`
	Source   *CodeSource   `json:"source,omitempty"` // nil: not known
}

// CodeFile is one file of a manifest. A link points to a file inside the environment.
type CodeFile struct {
	Digest Digest `json:"digest,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Exec   bool   `json:"exec,omitempty"`
	Link   string `json:"link,omitempty"`
}

// CodeManifest lists the files of an environment. The keys of Files are slash-separated paths. The
// canonical encoding of a manifest is the output of encoding/json, which sorts maps.
type CodeManifest struct {
	Version     int                 `json:"v"`
	Environment string              `json:"environment"`
	Files       map[string]CodeFile `json:"files"`
}

// IsEnvironment reports whether the files look like a Puppet environment: they have environment.conf or manifests.
func (m CodeManifest) IsEnvironment() bool {
	if _, has := m.Files["environment.conf"]; has {
		return true
	}
	for name := range m.Files {
		if strings.HasPrefix(name, "manifests/") {
			return true
		}
	}
	return false
}

// maxPath is less than the longest path of Linux, because the path of the tree comes before the path of the file.
const maxPath = 3 << 10

// Validate refuses a manifest that leads out of its own tree: absolute or unclean paths, links to
// files outside, and files below links.
func (m CodeManifest) Validate() error {
	if m.Version != 1 {
		return Errorf(CodeInvalid, "manifest of version %d: this release reads only version 1", m.Version)
	}
	if !environmentRE.MatchString(m.Environment) {
		return Errorf(CodeInvalid, "manifest: environment %q: lower-case letters, digits and '_' only, as in Puppet", m.Environment)
	}
	for name, f := range m.Files {
		if strings.Contains(name+f.Link, "\x00") || len(name) > maxPath || len(f.Link) > maxPath || f.Size < 0 {
			return Errorf(CodeInvalid, "manifest: %q, link %q, %d bytes: this cannot be a file", name, f.Link, f.Size)
		}
		if !fs.ValidPath(name) || name == "." {
			return Errorf(CodeRefused, "manifest: path %q leads out of the code", name)
		}
		if f.Link == "" {
			if err := f.Digest.Validate(); err != nil {
				return Wrap(CodeInvalid, err, "manifest: %s", name)
			}
			continue
		}
		if path.IsAbs(f.Link) || climbs(f.Link) || !fs.ValidPath(path.Join(path.Dir(name), f.Link)) {
			return Errorf(CodeRefused, "manifest: link %q leads out of the code, to %q", name, f.Link)
		}
	}
	for name := range m.Files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, isFile := m.Files[dir]; isFile {
				return Errorf(CodeRefused, "manifest: %q is a file and has %q below it", dir, name)
			}
		}
	}
	return nil
}

// The function `climbs` reports whether a link's target has `..` after the name of a directory. The target of a climbing
// link depends on other links on its path.
func climbs(link string) bool {
	down := false
	for part := range strings.SplitSeq(link, "/") {
		if part == ".." && down {
			return true
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return false
}
