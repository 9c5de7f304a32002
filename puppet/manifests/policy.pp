# @summary Writes the policy by which a node answers the remote control (`tutti puppet`).
#
# The data has the shape of Choria's `mcollective_agent_puppet::policies`, so that it can come from Hiera. Choria copies a
# list with commas as it is, and its rule then never matches. This class refuses commas.
#
# @param policies
#   The rules, in order. The first rule whose columns all match decides.
# @param policy_default
#   The decision if no rule matches.
# @param groups
#   Names of groups of callers, with the callers of each group.
# @param file
#   The policy file of the agent (`tutti agent --policy`). The class makes its directory only if this is `/etc/tutti`.
# @param ensure
#   With `absent` the node has no policy file. The directory stays.
class tutti::policy (
  Array[Struct[{
        action  => Enum['allow', 'deny'],
        callers => Variant[String[1], Array[String[1], 1]],
        actions => Variant[String[1], Array[String[1], 1]],
        facts   => Optional[Variant[String[1], Array[String[1], 1]]],
        classes => Optional[Variant[String[1], Array[String[1], 1]]],
  }]] $policies = [],
  Enum['allow', 'deny'] $policy_default = 'deny',
  Hash[Pattern[/\A[\w.-]+\z/], Array[Pattern[/\A[^\s,]+\z/], 1]] $groups = {},
  Pattern[/\A\//] $file = '/etc/tutti/policy',
  Enum['present', 'absent'] $ensure = 'present',
) {
  $rules = $policies.map |$index, $rule| {
    $columns = ['callers', 'actions', 'facts', 'classes'].map |$column| {
      $text = [$rule[$column]].flatten.filter |$word| { $word =~ String }.join(' ')
      if $text =~ /,/ and $column in ['callers', 'actions'] {
        $hint = regsubst($text, '\s*,\s*', ' ', 'G')
        fail("tutti::policy: rule ${$index + 1}: ${column}: \"${text}\" has commas, so it would never match; write \"${hint}\"")
      }
      if $text =~ /[\t\r\n]/ {
        fail("tutti::policy: rule ${$index + 1}: ${column}: tabs and line ends separate columns and rules")
      }
      $text ? { '' => '*', default => $text }
    }
    if $columns[0] =~ /(^|\s)(puppet|choria|cert|uid|gid|user|group)=/ {
      fail("tutti::policy: rule ${$index + 1}: callers: \"${columns[0]}\" is a caller of Choria; write operator:NAME")
    }
    ([$rule['action']] + $columns).join("\t")
  }
  $header = ['# Puppet writes this file (class tutti::policy).', "policy default ${policy_default}"]
  $files = $ensure ? { 'present' => file, default => absent }
  $callers = $groups.map |$name, $members| { "${name} ${members.join(' ')}" }

  if $ensure == 'present' and $file =~ /\A\/etc\/tutti\/[^\/]+\z/ {
    file { '/etc/tutti':
      ensure => directory,
      owner  => 'root',
      group  => 'root',
      mode   => '0755',
    }
  }

  file {
    default:
      ensure => $files,
      owner  => 'root',
      group  => 'root',
      mode   => '0644';
    $file:
      content => ($header + $rules + ['']).join("\n");
    "${file}.groups":
      content => ($callers + ['']).join("\n");
  }
}
