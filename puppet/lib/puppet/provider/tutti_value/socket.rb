# frozen_string_literal: true

require 'digest'
require 'puppet_x/tutti/run'

Puppet::Type.type(:tutti_value).provide(:socket) do
  desc 'Publishes through the agent that ordered this run. Outside of such a run it does nothing.'

  # What is published now, compared with what should be.
  # @return [Symbol] :present, :outdated or :absent
  def state
    if run.nil?
      PuppetX::Tutti::Run.warn_bare
      return resource[:ensure]
    end
    answer = run.published(resource[:key])
    if answer.nil?
      PuppetX::Tutti::Run.warn_local
      return resource[:ensure]
    end
    return :absent unless answer.found
    return :present if resource[:ensure] == :absent

    answer.value == desired ? :present : :outdated
  end

  def publish
    raise Puppet::Error, "source_file #{resource[:source_file]} does not exist" if desired.nil?

    run.publish(resource[:key], desired)
  end

  def withdraw
    run.withdraw(resource[:key])
  end

  private

  def run
    PuppetX::Tutti::Run.current
  end

  # nil where the file does not exist; in a noop run it may come to exist in the real one.
  def desired
    path = resource[:source_file]
    return resource[:value] if path.nil?

    "sha256:#{Digest::SHA256.file(path).hexdigest}" if File.file?(path)
  end
end
