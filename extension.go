package tutti

import "strings"

// ExtensionArc is the OID above Puppet's trusted extensions. The arcs below it are 1 (registered), 2 (private) and 3
// (authorization).
const ExtensionArc = "1.3.6.1.4.1.34380.1"

// These constants limit the trusted extensions of a certificate.
const (
	MaxExtensions      = 64
	MaxExtensionLength = 1024 // bytes of the value of an extension
)

// SecretExtension is the short name of an extension that may be a secret. Tutti does not read it.
const SecretExtension = "pp_preshared_key"

// Puppet's short names of extensions, from lib/puppet/ssl/oids.rb of Puppet 8. The key is the end of the OID after
// ExtensionArc.
var extensionNames = map[string]string{
	"1.1": "pp_uuid", "1.2": "pp_instance_id", "1.3": "pp_image_name", "1.4": SecretExtension, "1.5": "pp_cost_center",
	"1.6": "pp_product", "1.7": "pp_project", "1.8": "pp_application", "1.9": "pp_service", "1.10": "pp_employee",
	"1.11": "pp_created_by", "1.12": "pp_environment", "1.13": "pp_role", "1.14": "pp_software_version", "1.15": "pp_department",
	"1.16": "pp_cluster", "1.17": "pp_provisioner", "1.18": "pp_region", "1.19": "pp_datacenter", "1.20": "pp_zone",
	"1.21": "pp_network", "1.22": "pp_securitypolicy", "1.23": "pp_cloudplatform", "1.24": "pp_apptier", "1.25": "pp_hostname",
	"1.26": "pp_owner", "3.1": "pp_authorization", "3.2": "pp_auth_auto_renew", "3.13": "pp_auth_role", "3.39": "pp_cli_auth",
}

// ExtensionName returns the name of a trusted extension for its OID: Puppet's short name, or the OID if there is none.
func ExtensionName(oid string) string {
	if short, ok := extensionNames[strings.TrimPrefix(oid, ExtensionArc+".")]; ok {
		return short
	}
	return oid
}

// ExtensionNames returns the short names of the trusted extensions that Tutti reads.
func ExtensionNames() []string {
	var out []string
	for _, name := range extensionNames {
		if name != SecretExtension {
			out = append(out, name)
		}
	}
	return out
}
