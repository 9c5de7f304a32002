package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti/internal/lab"
)

// RunServers starts servers in the cloud of the compute example, through the cloud's API. RunServers starts as many
// servers as there are compute nodes. RunServers returns when one server is running on each compute node. The servers
// have an empty disk and no network, because the example has no service for that. Before the call, the cloud must have
// no servers, because a new server goes to the node with the most free memory.
func (f *LabFleet) RunServers(ctx context.Context) error {
	controller, err := f.node("controller-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, serversDeadline, fmt.Errorf("no server runs on each compute node within %s", serversDeadline))
	defer cancel()
	nodes := slices.DeleteFunc(slices.Clone(f.Nodes), func(h *lab.Host) bool { return !strings.HasPrefix(h.Name, "compute-") })
	if _, err := Output(ctx, controller, nil, "sh", "-euc", orderServers, "sh", strconv.Itoa(len(nodes))); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	for _, h := range nodes {
		if _, err := Output(ctx, h, nil, "sh", "-euc", serverRuns); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
	return nil
}

const serversDeadline = 5 * time.Minute

// orderServers orders $1 servers after the scheduler has found $1 compute nodes. The script uses the
// administrator's credentials that Keystone's module has written. The script does not use `openstack server
// create`, because that command also asks Neutron for the servers' ports.
const orderServers = `
	until [ "$(nova-manage cell_v2 list_hosts | grep -c compute-)" = "$1" ]; do sleep 1; done
	export OS_CLIENT_CONFIG_FILE=/etc/openstack/puppet/admin-clouds.yaml OS_CLOUD=project
	truncate -s 1M /tmp/empty
	image=$(openstack image create --disk-format raw --container-format bare --file /tmp/empty -f value -c id empty)
	openstack flavor create --id tiny --ram 64 --disk 1 --vcpus 1 tiny
	printf 'X-Auth-Token: %s\n' "$(openstack token issue -f value -c id)" > /tmp/token
	curl -sS --fail-with-body http://localhost:8774/v2.1/servers -H @/tmp/token -H 'X-OpenStack-Nova-API-Version: 2.37' \
		--json '{"server": {"name": "server", "imageRef": "'$image'", "flavorRef": "tiny", "networks": "none", "min_count": '$1', "max_count": '$1'}}'
`

// serverRuns waits until libvirt runs a server.
const serverRuns = `until [ -n "$(virsh list --name --state-running)" ]; do sleep 1; done`
