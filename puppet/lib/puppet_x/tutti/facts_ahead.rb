# frozen_string_literal: true

require 'fileutils'
require 'time'
require_relative 'fact_leavings'
require_relative 'facts_digest'
require_relative 'launcher'
require_relative 'outside'

module PuppetX
  module Tutti
    # This class collects facts after one run for the next run. The collecting process does the first part of a run,
    # up to the lock. It has its own directory and no agent. It uses the settings of a run and asks Facter through
    # Puppet's terminus. If the process ends before it has facts, the next run collects its own facts.
    class FactsAhead < Launcher
      # NOW is the file with the result of comparing the new facts with the facts of a run. The file is in
      # the directory of this run, and the agent reads it.
      NOW = 'facts-now.json'
      # HELD is the file with all new facts. The agent sends the file to the server, if the server holds facts for
      # queries (ADR 0036). The file is in the same directory and is written before NOW.
      HELD = 'facts-held.json'
      # NAMES is the largest number of changed facts that the file NOW names.
      NAMES = 10
      # LIMIT is the time limit, in seconds, for a collection that the agent has lost.
      LIMIT = 600
      # LOWEST is the lowest priority of the processor.
      LOWEST = 19
      # Matches the file of a type, or of a part of a type.
      TYPE = %r{/puppet/type/(?<type>[^/]+?)(?<part>/.+)?\.rb\z}.freeze

      # Facts are the answers of Facter that a child of the warm parent has collected.
      # @param said [Hash] the complete answers of Facter, by question
      # @param single [Hash] answers about single facts, by name; nil means that the fact does not exist
      # @param messages [Array<Hash>] the messages of Facter during the collection
      # @param plugins [Hash] the fact plugins and their change times
      # @param costs [Hash] see FactCosts
      # @param process [Array] the environment variables that facts have changed, the umask and the directory; the
      #   umask and the directory are nil if facts have not changed them
      # @param paths [Array<String>] the directories that facts have added to Ruby's path of libraries
      # @param libraries [Array<String>] the files that facts have required, in this order
      # @param ended [Array, nil] the last Puppet run before the collection, see last_run
      # @param external [Array<String>] the directories in which Facter itself looks for facts
      # @param began [Time] when the collection began, by the clock of the files' times
      # @param leaves [String, nil] a change that a fact's file has made in the child and that cannot be repeated here
      # @param lent [Hash] the methods that facts' files define outside of any class, with their files
      Facts = Struct.new(:at, :said, :single, :messages, :plugins, :costs, :process, :paths, :libraries, :ended, :external, :leaves, :lent, :began) do
        # @return [Facts, nil] nil if the text is not complete
        def self.read(text)
          Marshal.load(text) # rubocop:disable Security/MarshalLoad # written by a child of this process, through a pipe
        rescue ArgumentError, TypeError, EOFError
          nil
        end

        # Returns the seconds since the facts were collected.
        def age
          Process.clock_gettime(Process::CLOCK_BOOTTIME) - at
        end

        # Returns whether these facts are still valid: since the collection, no Puppet run of any kind has
        # ended, and no plugin has changed.
        def valid?
          ended == FactsAhead.last_run && plugins == FactsAhead.plugins(external) && plugins.values.flatten.none? { |time| time.between?(began, Time.now) }
        rescue SystemCallError
          false # a plugin was removed in the meantime
        end

        # Makes the same changes in this process that the run's own collection would have made. For example, a fact may
        # have used a type that sets environment variables, or other code of a module may need a library that a fact
        # has loaded.
        # @return [String, nil] the reason why this process cannot make the changes
        def leave
          return "its facts were collected before, and #{leaves}" if leaves

          variables, umask, directory = process
          ENV.update(variables)
          $LOAD_PATH.unshift(*(paths - $LOAD_PATH))
          libraries.each { |file| require file }
          lent.each { |name, path| FactLeavings.lend(name, path) }
          Dir.chdir(directory) if directory
          File.umask(umask) if umask # last, because after an error above this process must be unchanged
          nil
        rescue StandardError, ScriptError => e
          "what facts leave behind cannot be had without them: #{e.message}"
        end
      end

      # Told extends Puppet's Facter. It remembers the answers of Facter, or already has the answers of an
      # earlier collection.
      module Told
        attr_reader :said, :single, :asked

        # @param facts [Facts, nil] the facts of an earlier collection; nil if there are none
        def self.by(facts = nil)
          Puppet.runtime[:facter].extend(Told).tap { |told| told.tell(facts&.said || {}, facts&.single || {}, facts&.messages || []) }
        end

        def tell(said, single, messages)
          @asked ||= [] # facts that were requested one by one and are not in the complete answer
          @said = said
          @single = single
          @messages = messages
        end

        def to_hash
          whole(:to_hash) { super }
        end

        def resolve(question)
          whole(question) { super }
        end

        # If a fact is not in the complete answer, this method asks Facter for it. Facter runs all external facts before
        # it reports that a fact does not exist.
        def value(name)
          found = told(name.to_s)
          return found unless found.nil?

          @asked |= [name.to_s]
          @single.fetch(name.to_s) { super }
        end

        private

        def told(name)
          @said.values.first&.dig(*name.split('.'))
        rescue TypeError # the path leads into a value without parts
          nil
        end

        # Puppet adds its own facts to the returned hash.
        def whole(question)
          @messages.shift(@messages.size).each { |message| Puppet::Util::Log.create(message) }
          (@said[question] ||= yield).dup
        end
      end

      # Returns the fact plugins outside the code of an environment. The code itself is identified by its digest.
      # @param external [Array<String>] see external
      def self.plugins(external)
        dirs = [*puppets, *elsewhere, *external]
        files = external.select { |dir| File.directory?(dir) } + Dir.glob(dirs.map { |dir| "#{dir}/**/*" })
        files.uniq.sort.to_h { |file| [file, [File.lstat(file).ctime, (File.stat(file).ctime if File.exist?(file))].compact] }
      end

      # Returns the directories of facts in Puppet's settings.
      def self.puppets
        [Puppet[:factpath], Puppet[:pluginfactdest]].flat_map { |paths| paths.split(File::PATH_SEPARATOR) }
      end
      private_class_method :puppets

      # Returns the directories of facts that Facter itself searches, including those in facter.conf. Facter
      # has this list only after it has searched for facts.
      def self.external
        code = "#{Puppet[:environmentpath]}/"
        dirs = [*Facter.search_external_path, *Facter.search_path].map { |dir| File.expand_path(dir) }
        dirs.uniq.reject { |dir| dir.start_with?(code) } - puppets.map { |dir| File.expand_path(dir) }
      end

      # Returns the directories of facts in modules that are on the modulepath but outside the environment
      # (basemodulepath).
      def self.elsewhere
        environment = Puppet.lookup(:environments).get(Puppet[:environment]) unless Puppet.run_mode.agent?
        modules = environment ? environment.modules.reject { |one| one.path.start_with?("#{Puppet[:environmentpath]}/") } : []
        modules.flat_map { |one| [File.join(one.path, 'lib/facter'), File.join(one.path, 'facts.d')] }
      end
      private_class_method :elsewhere

      # Identifies the last Puppet run of any kind by the summary file, because each run replaces this file. The time
      # alone would not be enough, because a run may change the clock.
      def self.last_run
        stat = File.stat(Puppet[:lastrunfile])
        [stat.mtime, stat.ino]
      rescue SystemCallError
        nil # there was no run yet
      end

      # Returns things that a fact may change for the rest of the run.
      def self.process
        [ENV.to_h, File.umask, Dir.pwd]
      end

      # Returns the files that facts have required. The list has no types, providers and similar files, because Puppet
      # itself loads these files when it needs them. A required type is also left out if Puppet would load the type
      # from the same file. But if a library was required after a type, the type stays in the list, because the
      # library may depend on the type.
      # @param before [Array<String>] the files that Ruby had loaded before the collection
      # @return [Array<String>] the files that were required after the beginning of the collection
      def self.required(before)
        types = []
        Puppet::Type.eachtype { |type| types << type.name.to_s }
        files = $LOADED_FEATURES - before - Puppet::Util::Autoload.loaded.values.map(&:first)
        files.reject! { |file| (found = file.match(TYPE)) && found[:part] && types.include?(found[:type]) } # Puppet loads this part together with its type
        files.pop while files.last && types.include?(type = files.last[TYPE, :type]) && files.last == autoloaded(type)
        files
      end

      # Returns the path where Puppet finds a type.
      def self.autoloaded(type)
        Puppet::Util::Autoload.get_file("puppet/type/#{type}", Puppet.lookup(:current_environment))
      end
      private_class_method :autoloaded

      # @param before [Array] see process
      # @return [Array] see Facts
      def self.changed(before)
        was, *others = before
        is, *now = process
        names = (was.keys | is.keys).reject { |name| was[name] == is[name] }
        [names.to_h { |name| [name, is[name]] }, *now.zip(others).map { |after, other| after unless after == other }]
      end

      class << self
        # The end of a pipe that tells the warm parent when its child has ended.
        attr_accessor :pipe
      end

      # @param dir [String] the directory of the run whose order the collection uses
      # @param preload [Preload, nil] nil if nothing was loaded ahead
      # @param out [IO] the file for the facts
      def self.collect(dir, preload, out)
        Process.setpriority(Process::PRIO_PROCESS, 0, LOWEST) # no run waits for the collection yet, see Ahead#facts
        ends_at_last unless preload
        Launcher.current = new(Order.read(dir), scratch(dir), preload, out)
        Launcher.current.start
      end

      # Ends a collection that hangs, because without a parent nobody else would end it. The signal goes to all
      # processes of the collection.
      def self.ends_at_last
        Thread.new do
          sleep LIMIT
          Process.kill('KILL', -Process.getpgrp)
        end
      end
      private_class_method :ends_at_last

      # Returns a directory in the run's directory. The directory is removed with the run's directory at the latest.
      def self.scratch(dir)
        File.join(dir, 'ahead').tap do |scratch|
          FileUtils.rm_rf(scratch)
          Dir.mkdir(scratch, 0o700)
          at_exit { FileUtils.rm_rf(scratch) }
        end
      end
      private_class_method :scratch

      def initialize(order, dir, preload, out)
        super(dir, preload)
        @order = order
        @out = out
      end

      # Asks Facter. A run would apply a catalog at this point.
      def surround
        at = Process.clock_gettime(Process::CLOCK_BOOTTIME)
        @began = Time.now
        ended = FactsAhead.last_run
        loaded = $LOADED_FEATURES.dup
        path = $LOAD_PATH.dup
        before = FactsAhead.process
        FactCosts.watch
        told = Told.by
        environment = @order.agent? ? Puppet::Node::Environment.remote(Puppet[:environment]) : Puppet.lookup(:current_environment)
        request = Puppet::Indirector::Request.new(:facts, :find, Puppet[:node_name_value], nil, environment: environment)
        found = nil
        leaves, lent = FactLeavings.of { found = Puppet::Node::Facts.indirection.terminus(:facter).find(request) }
        external = FactsAhead.external
        single = asked.to_h { |name| [name, told.value(name)] }
        facts = Facts.new(at, told.said, single, messages, FactsAhead.plugins(external), FactCosts.record,
                          FactsAhead.changed(before), $LOAD_PATH - path, FactsAhead.required(loaded), ended, external, leaves, lent, @began)
        compare(found.values, external, Outside.new(@order.agent? ? nil : environment, @order.volatile_facts)) # last, because `compare` also requires files
        @out.write(Marshal.dump(facts))
        @out.close
        exit
      end

      def disabled(_message)
        exit
      end

      private

      # Compares the new facts with the facts of the run, and writes the result to the file NOW.
      def compare(values, external, outside)
        volatile = @order.volatile_facts
        before = JSON.parse(File.read(file('../facts.json'))).merge(outside_before)
        Journal.replace(file("../#{HELD}"), values)
        values = values.merge(outside.facts)
        changed = FactsDigest.changed(before, values, volatile)
        Journal.replace(file("../#{NOW}"), { 'facts' => FactsDigest.of(values, volatile), 'changed' => changed.first(NAMES),
                                             'watch' => external + outside.directories, 'began' => @began.utc.iso8601(6) })
      rescue SystemCallError, JSON::ParserError
        nil # the run has no facts, or the disk is full
      end

      # Returns the digests of the run that count as facts, see Outside. A run of an earlier release has no such
      # digests.
      def outside_before
        JSON.parse(File.read(file('../outside.json')))
      rescue Errno::ENOENT
        {}
      end

      # Returns the names of the facts that the run asked for one by one.
      def asked
        JSON.parse(File.read(file("../#{FACT_USE}")))['asked']
      rescue SystemCallError, JSON::ParserError
        []
      end

      # Returns the messages of Facter. A run that collects its own facts also logs these messages.
      def messages
        File.readlines(file('log.jsonl')).map { |line| JSON.parse(line) }.select { |line| line['source'] == 'Facter' }
            .map { |line| { level: line['level'].to_sym, source: 'Facter', message: line['message'] } }
      end

      # A collection has no agent, so this Run has no client.
      def connect
        Run.current = Run.new(@order, nil)
      end

      # If the code that was loaded ahead may not be used, the collection starts again with nothing loaded ahead. No run
      # gets its facts, but the agent still learns which facts the node has. The parent's pipe stays open until the end.
      def start_over(why)
        return if why.nil?

        pipe = FactsAhead.pipe
        exec(@environment, RbConfig.ruby, PROGRAM, '--facts', File.dirname(@dir), unsetenv_others: true, pipe => pipe)
      end
    end
  end
end
