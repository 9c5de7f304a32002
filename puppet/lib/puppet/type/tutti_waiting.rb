# frozen_string_literal: true

require 'puppet_x/tutti/run'

Puppet::Type.newtype(:tutti_waiting) do
  @doc = <<-DOC
    @summary Stands for a block that was left out of the catalog, because a question has no answer yet.

    `tutti::with` and `tutti::require_exports` declare it; nobody else needs to. It fails when it is applied, so that only what
    requires it, or the class that it is in, is skipped. A run in which nothing else failed ends `waiting`.
  DOC

  newparam(:name, namevar: true) do
    desc 'What is missing.'
  end

  newparam(:question) do
    desc 'The question without an answer, for people.'
    defaultto { @resource[:name] }
  end

  newproperty(:ensure) do
    desc 'A question is answered by somebody else; a new compile then has the block.'

    newvalue(:answered) do
      why = PuppetX::Tutti::Run.current ? 'a new compile is needed when somebody has answered' : 'this Puppet was not started by Tutti, which nobody answers'
      raise Puppet::Error, "waits for #{resource[:question]}: #{why}"
    end
    defaultto :answered

    def retrieve
      :unanswered
    end
  end
end
