# frozen_string_literal: true

require 'digest'
require 'puppet_x/tutti/run'

Puppet::Type.type(:tutti_value).provide(:socket) do
  desc 'Publishes through the agent that ordered this run. Outside of such a run it does nothing.'

  # Returns the state of the published value. Puppet compares this state with the wanted state.
  # @return [Symbol] :present, :outdated or :absent
  def state
    if run.nil?
      PuppetX::Tutti::Run.warn_bare
      return resource[:ensure]
    end
    state = resource.secret? ? run.published_secret(resource[:key], desired, resource[:for]) : published
    PuppetX::Tutti::Run.warn_local if state.nil?
    state || resource[:ensure]
  end

  def publish
    raise Puppet::Error, "source_file #{resource[:source_file]} does not exist" if desired.nil?
    return run.publish_secret(resource[:key], desired, resource[:for]) if resource.secret?

    run.publish(resource[:key], desired)
  end

  def withdraw
    run.withdraw(resource[:key])
  end

  private

  # @return [Symbol, nil] :present, :outdated or :absent; nil in a local run
  def published
    answer = run.published(resource[:key], resource[:ensure] == :absent ? { 'withdraw' => true } : { 'value' => desired })
    return nil if answer.nil?
    return :absent unless answer.found
    return :present if resource[:ensure] == :absent

    answer.value.eql?(desired) ? :present : :outdated # 1 and 1.0 are different values in Puppet
  end

  def run
    PuppetX::Tutti::Run.current
  end

  # Returns nil if the file does not exist. In a noop run the file may be missing, because only a
  # real run creates it.
  def desired
    path = resource[:source_file]
    return resource[:value] if path.nil?

    "sha256:#{Digest::SHA256.file(path).hexdigest}" if File.file?(path)
  end
end
