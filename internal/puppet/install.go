package puppet

import (
	"os"
	"path/filepath"

	"github.com/tutti-project/tutti"
)

// Installation is a Puppet on this machine and its Ruby.
type Installation struct {
	Ruby   string
	Puppet string
}

// places are the paths where Find looks for Puppet. The vendors' packages come first, then
// Debian's.
var places = []Installation{
	{Ruby: "/opt/puppetlabs/puppet/bin/ruby", Puppet: "/opt/puppetlabs/puppet/bin/puppet"},
	{Ruby: "/usr/bin/ruby", Puppet: "/usr/bin/puppet"},
}

// Find returns the node's Puppet below root (normally "/"). Find searches at each call, because a run may
// install or move Puppet.
func Find(root string) (Installation, error) {
	for _, p := range places {
		found := Installation{Ruby: filepath.Join(root, p.Ruby), Puppet: filepath.Join(root, p.Puppet)}
		if executable(found.Ruby) && executable(found.Puppet) {
			return found, nil
		}
	}
	return Installation{}, tutti.Errorf(tutti.CodeNotFound, "no Puppet on this node: neither %s nor %s is there; install puppet-agent (or openvox-agent)",
		places[0].Puppet, places[1].Puppet)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}
