# What is called by the clock: an empty POST, as the scheduler's account.

locals {
  schedules = {
    # The next minute is the better retry; one at once bridges an instance that was ended.
    tick = { schedule = "* * * * *", zone = "Etc/UTC", deadline = 60, retries = 1, min_backoff = 5, max_backoff = 10, paused = false }
    # Not at the full hour, when everybody calls.
    renew = { schedule = "17 * * * *", zone = "Etc/UTC", deadline = 600, retries = 3, min_backoff = 60, max_backoff = 300, paused = false }
    # A retry is of the same day: the day is that of the schedule's own time.
    digest = {
      schedule = "0 ${var.digest_hour} * * *", zone = var.digest_zone, deadline = 60, retries = 5, min_backoff = 60, max_backoff = 600
      paused   = var.digest_sender == ""
    }
  }
}

resource "google_cloud_scheduler_job" "schedule" {
  for_each = local.schedules

  project          = local.project_with["cloudscheduler"]
  region           = var.region
  name             = "mailyard-${each.key}"
  description      = "Calls Mailyard's ${local.functions[each.key].entry_point}"
  schedule         = each.value.schedule
  time_zone        = each.value.zone
  attempt_deadline = "${each.value.deadline}s"
  paused           = each.value.paused

  retry_config {
    retry_count          = each.value.retries
    min_backoff_duration = "${each.value.min_backoff}s"
    max_backoff_duration = "${each.value.max_backoff}s"
  }

  http_target {
    uri         = local.function_uris[each.key]
    http_method = "POST"

    oidc_token {
      service_account_email = google_service_account.scheduler.email
      audience              = local.function_uris[each.key]
    }
  }

  # A job that comes before the right to invoke would fail at first.
  depends_on = [google_cloud_run_v2_service_iam_member.invoker]
}
